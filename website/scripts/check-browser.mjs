// Opens every page of the built site in Chromium, light and dark: no script error, no failed request, no other origin, and
// no violation of axe's rules.
//
//   npm run check:browser            # CHROMIUM names the browser, /usr/bin/chromium by default
import { createReadStream, existsSync, readFileSync, readdirSync, statSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { extname, join, resolve } from 'node:path';
import puppeteer from 'puppeteer-core';

const dist = resolve(import.meta.dirname, '../dist');
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const TYPES = { '.html': 'text/html; charset=utf-8', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml', '.json': 'application/json', '.wasm': 'application/wasm' };

const server = createServer((request, response) => {
  const path = decodeURIComponent(new URL(request.url, 'http://site').pathname);
  let file = resolve(join(dist, path));
  if (existsSync(file) && statSync(file).isDirectory()) file = join(file, 'index.html');
  if (!file.startsWith(dist) || !existsSync(file)) return response.writeHead(404).end();
  response.writeHead(200, { 'content-type': TYPES[extname(file)] ?? 'application/octet-stream' });
  return createReadStream(file).pipe(response);
});
await new Promise((done) => server.listen(0, '127.0.0.1', done));
const origin = `http://127.0.0.1:${server.address().port}`;

const browser = await puppeteer.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
const pages = readdirSync(dist, { recursive: true }).filter((name) => name.endsWith('index.html')).sort();
const wrong = [];

async function look(name, scheme) {
  const page = await browser.newPage();
  const note = (text) => wrong.push(`${name} (${scheme}): ${text}`);
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
  page.on('pageerror', (error) => note(error));
  page.on('requestfailed', (request) => note(`failed: ${request.url()}`));
  page.on('response', (response) => response.status() >= 400 && note(`${response.status()}: ${response.url()}`));
  page.on('request', (request) => /^https?:/.test(request.url()) && !request.url().startsWith(origin) && note(`other origin: ${request.url()}`));
  await page.goto(`${origin}/${name}`, { waitUntil: 'load' });
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  violations.forEach(({ id, nodes }) => note(`${id}: ${nodes.map(({ target }) => target).join(', ')}`));
  await page.close();
}

for (const scheme of ['light', 'dark']) {
  for (const name of pages) await look(name, scheme);
}
await browser.close();
server.close();
wrong.forEach((line) => console.error(line));
console.log(`${pages.length} pages, light and dark, ${wrong.length} wrong`);
process.exitCode = wrong.length ? 1 : 0;
