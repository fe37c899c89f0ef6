// Writes `dist` to `console.tar`, which the gateway embeds: a tar file whose members are gzipped, in the order of their
// names and without times, so that the same sources and the same package-lock.json make the same bytes anywhere.
// With --check it compares instead, and says what is different.
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { gzipSync } from 'fflate';

const root = import.meta.dirname;
const dist = join(root, 'dist');
const target = join(root, 'console.tar');
const BLOCK = 512;
const LIMIT = 500 * 1024;

/** A ustar header (POSIX.1-1988) of a file that everybody may read. */
function header(name, size) {
  const block = Buffer.alloc(BLOCK);
  const put = (text, at) => block.write(text, at, 'latin1');
  if (name.length > 99) throw new Error(`${name} is too long for a tar file`);
  put(name, 0);
  put('0000644\0', 100);
  put('0000000\0', 108);
  put('0000000\0', 116);
  put(`${size.toString(8).padStart(11, '0')}\0`, 124);
  put('00000000000\0', 136);
  put('        ', 148);
  put('0', 156);
  put('ustar\x0000', 257);
  const sum = block.reduce((all, byte) => all + byte, 0);
  put(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
  return block;
}

const files = readdirSync(dist, { recursive: true })
  .map((name) => join(dist, name))
  .filter((path) => statSync(path).isFile())
  .map((path) => relative(dist, path))
  .sort();
const parts = [];
let bytes = 0;
for (const name of files) {
  const packed = gzipSync(readFileSync(join(dist, name)), { level: 9, mtime: 0 });
  bytes += packed.length;
  parts.push(header(`${name}.gz`, packed.length), packed, Buffer.alloc((BLOCK - (packed.length % BLOCK)) % BLOCK));
  console.log(`${String(packed.length).padStart(8)}  ${name}`);
}
parts.push(Buffer.alloc(2 * BLOCK));
const archive = Buffer.concat(parts);
console.log(`${String(bytes).padStart(8)}  in all, of ${LIMIT}`);
if (bytes > LIMIT) {
  console.error('The console is larger than its limit.');
  process.exit(1);
}
if (process.argv.includes('--check')) {
  if (!archive.equals(readFileSync(target))) {
    console.error('console.tar is not what the sources make; run `npm run build` in ferrum-edge/console and commit it.');
    process.exit(1);
  }
} else {
  writeFileSync(target, archive);
}
