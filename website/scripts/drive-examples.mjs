// Runs the examples whose first lines are requests, and compares the statuses that they get:
//
//   # curl -H 'x-api-key: KEY' http://127.0.0.1:8000/shop -> 200
//
//   npm run drive:examples -- ../target/debug/ferrum-edge
//
// Targets are an echo server: it answers `/broken` with 500, `/none` with 404, everything else with 200.
import { spawn, spawnSync } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createServer as createSocket } from 'node:net';
import { join } from 'node:path';
import { env, examples, folder, program } from './examples.mjs';

const listening = (server, host) => new Promise((done) => server.listen(0, host, () => done(server.address().port)));

async function freePort() {
  const server = createSocket();
  const port = await listening(server, '127.0.0.1');
  await new Promise((done) => server.close(done));
  return port;
}

const echo = createServer((request, response) => {
  response.statusCode = request.url.includes('broken') ? 500 : request.url.includes('none') ? 404 : 200;
  response.end(JSON.stringify({ url: request.url, headers: request.headers }));
});
const target = await listening(echo, '0.0.0.0');

/** The example with its targets on this machine, and without listeners that need another user or another machine. */
const local = (text) =>
  text
    .replace(/(backend_port|port): (3000|3001|8080)\b/g, `$1: ${target}`)
    .replace(/(host|backend_host): 10\.(\d+\.\d+\.\d+)/g, '$1: 127.$2')
    .replace(/^ {2}https?: 0\.0\.0\.0:\d+\n/gm, '');

const words = (line) => [...line.matchAll(/'([^']*)'|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain);

async function ready(port, gateway) {
  for (let tries = 0; tries < 300 && gateway.exitCode === null; tries += 1) {
    try {
      if ((await fetch(`http://127.0.0.1:${port}/readyz`)).ok) return true;
    } catch { /* Not yet. */ }
    await new Promise((done) => setTimeout(done, 50));
  }
  return false;
}

async function curl(args, port) {
  const all = ['-s', '-o', '/dev/null', '-m', '10', '-w', '%{http_code}', ...args.map((arg) => arg.replace(':8000', `:${port}`))];
  const child = spawn('curl', all);
  let output = '';
  child.stdout.on('data', (text) => { output += text; });
  await new Promise((done) => child.once('exit', done));
  return output;
}

async function drive(example, work) {
  const requests = [...example.text.matchAll(/^# curl (.*) -> (\d+)$/gm)];
  writeFileSync(join(work, 'ferrum.yaml'), local(example.text));
  const [http, admin] = [await freePort(), await freePort()];
  const flags = ['run', '--spec', 'ferrum.yaml', '--http-port', http, '--https-port', 0, '--admin-port', admin];
  const gateway = spawn(program, flags.map(String), { cwd: work, env, stdio: 'ignore' });
  const wrong = [];
  if (await ready(admin, gateway)) {
    for (const [, line, expected] of requests) {
      const status = await curl(words(line), http);
      if (status !== expected) wrong.push(`curl ${line}: ${status} instead of ${expected}`);
    }
  } else {
    const { stdout, stderr } = spawnSync(program, ['check', '--spec', 'ferrum.yaml'], { cwd: work, env, encoding: 'utf8' });
    wrong.push(`the gateway does not serve it: ${stdout}${stderr}`);
  }
  gateway.kill('SIGTERM');
  if (gateway.exitCode === null) await new Promise((done) => gateway.once('exit', done));
  wrong.forEach((line) => console.error(`${example.at}: ${line}`));
  return { requests: requests.length, wrong: wrong.length };
}

const work = folder();
const total = { examples: 0, requests: 0, wrong: 0 };
const driven = examples().filter(({ page, mark, text }) => !page.startsWith('reference/plugins') && mark === 'complete' && text.startsWith('# curl '));
for (const example of driven) {
  const { requests, wrong } = await drive(example, work);
  total.examples += 1;
  total.requests += requests;
  total.wrong += wrong;
}
echo.close();
rmSync(work, { recursive: true, force: true });
console.log(Object.entries(total).map(([key, value]) => `${key}: ${value}`).join(', '));
process.exitCode = total.wrong ? 1 : 0;
