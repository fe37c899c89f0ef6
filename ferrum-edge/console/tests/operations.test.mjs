// What operators do in the console besides editing, in Chromium, against a real gateway: a part of `npm run test:browser`.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { after, before, test } from 'node:test';
import { ADMIN, Gateway, fill, launch, open, press, shows, text, until, visit } from './place.mjs';

let browser;
before(async () => {
  browser = await launch();
});
after(async () => {
  await browser?.close();
});

/** A target that counts its requests, and whose responses may be stored. */
async function counting() {
  const seen = { count: 0 };
  const server = http.createServer((_, response) => {
    seen.count += 1;
    response.setHeader('cache-control', 'max-age=600');
    response.end('hello');
  });
  server.listen(0, '127.0.0.1');
  await new Promise((done) => server.once('listening', done));
  return { seen, port: server.address().port, end: () => server.close() };
}

async function apply(page) {
  await open(page, '#/review');
  await press(page, 'Apply');
  await shows(page, 'Applied as revision');
}

test('targets are drained, responses purged, sessions ended, false positives excluded', async () => {
  const [one, other] = [await counting(), await counting()];
  const echo = net.createServer((socket) => socket.pipe(socket).on('error', () => socket.destroy())).listen(0, '127.0.0.1');
  await new Promise((done) => echo.once('listening', done));
  const gateway = new Gateway();
  try {
    await gateway.start();
    const port = await new Promise((done) => {
      const free = net.createServer().listen(0, '127.0.0.1', () => {
        const { port } = free.address();
        free.close(() => done(port));
      });
    });
    const document = {
      upstreams: [{ id: 'servers', targets: [{ host: '127.0.0.1', port: one.port }, { host: '127.0.0.1', port: other.port }] }],
      proxies: [
        { id: 'pages', hosts: ['pages.example.com'], listen_path: '/', upstream_id: 'servers' },
        { id: 'stored', hosts: ['stored.example.com'], listen_path: '/', backend_host: '127.0.0.1', backend_port: one.port },
        { id: 'guarded', hosts: ['guarded.example.com'], listen_path: '/', backend_host: '127.0.0.1', backend_port: other.port },
        { id: 'stream', listen_port: port, backend_scheme: 'tcp', backend_host: '127.0.0.1', backend_port: echo.address().port },
      ],
      plugin_configs: [
        { id: 'kept', plugin_name: 'response_cache', scope: 'proxy', proxy_id: 'stored', config: {} },
        { id: 'fw', plugin_name: 'waf', scope: 'proxy', proxy_id: 'guarded', config: {} },
      ],
    };
    const { status, data } = await gateway.api('POST', '/v1/batch', document);
    assert.equal(status, 200, JSON.stringify(data));
    const page = await visit(browser, gateway, ADMIN);

    // Upstreams: a drained target gets nothing new, until it is restored.
    await gateway.send('pages.example.com', '/');
    await open(page, '#/upstreams/servers');
    await press(page, `Drain 127.0.0.1:${other.port}`);
    await apply(page);
    const before = other.seen.count;
    for (let n = 0; n < 6; n += 1) await gateway.send('pages.example.com', '/');
    assert.equal(other.seen.count, before);
    await open(page, '#/upstreams/servers');
    await shows(page, 'drained');
    await press(page, `Restore 127.0.0.1:${other.port}`);
    await apply(page);
    await until('the target gets requests again', async () => (await gateway.send('pages.example.com', '/')) === 200 && other.seen.count > before);

    // Cache: what is purged is fetched again.
    const fetched = async () => {
      assert.equal(await gateway.send('stored.example.com', '/a'), 200);
      return one.seen.count;
    };
    const stored = await fetched();
    assert.equal(await fetched(), stored, 'it comes from the cache');
    await open(page, '#/cache');
    await fill(page, 'main form input[type=text]', 'http://stored.example.com/a');
    await press(page, 'Purge', 'main');
    await shows(page, 'kept:');
    assert.equal(await fetched(), stored + 1);

    // Sessions: a stream is seen and ended.
    const socket = net.connect(port, '127.0.0.1');
    const gone = new Promise((done) => socket.once('close', done));
    socket.on('error', () => undefined);
    socket.write('hello');
    await new Promise((done) => socket.once('data', done));
    await open(page, '#/sessions');
    await shows(page, 'stream');
    await page.$eval('main details', (details) => (details.open = true));
    await shows(page, `curl -X DELETE ${gateway.base}/v1/sessions/`);
    await page.$eval('.list-row button.small', (button) => button.click());
    await gone;
    await shows(page, '1 ended');

    // Firewall: a record is excluded for its path and its rules, and nothing else is.
    const attack = '/?id=1%27%20or%201%3D1--';
    await open(page, '#/firewall');
    await shows(page, 'fw');
    await until('the attack is seen', async () => {
      assert.equal(await gateway.send('guarded.example.com', attack), 400);
      return (await text(page)).includes('Exclude here');
    });
    await page.$$eval('.list-row button', (all) => all.find((button) => button.innerText === 'Exclude here').click());
    await shows(page, 'An exclusion is in the draft');
    await apply(page);
    assert.equal(await gateway.send('guarded.example.com', attack), 200);
    assert.equal(await gateway.send('guarded.example.com', `/other${attack}`), 400, 'another path is guarded as before');
    assert.deepEqual(page.wrong, []);
    await page.browserContext().close();
  } finally {
    await gateway.end();
    one.end();
    other.end();
    echo.close();
  }
});

/** CPU time of a process, in ticks of 10 ms. */
function ticks(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
  return Number(fields[11]) + Number(fields[12]);
}

test('the first paint is quick, and an open console costs the gateway little', async () => {
  const gateway = new Gateway();
  try {
    await gateway.start();
    const page = await visit(browser, gateway, ADMIN);
    await page.reload();
    await page.waitForSelector('.shell');
    const paint = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0].startTime);
    console.log(`the first paint came after ${Math.round(paint)} ms`);
    assert.ok(paint < Number(process.env.CONSOLE_PAINT_MS ?? 1000), `${paint} ms`);
    await open(page, '#/now');
    await shows(page, 'Requests');
    const looks = () => page.evaluate(() => performance.getEntriesByType('resource').filter((one) => one.name.includes('/v1/traffic')).length);
    const [begun, cpu, first] = [Date.now(), ticks(gateway.process.pid), await looks()];
    await until('the page has looked ten times', async () => (await looks()) >= first + 10);
    const percent = ((ticks(gateway.process.pid) - cpu) * 1000) / (Date.now() - begun);
    console.log(`the console open on Now costs ${percent.toFixed(2)} % of a core`);
    // Of a release build; others are several times slower.
    if (process.env.CONSOLE_CPU_PERCENT) assert.ok(percent <= Number(process.env.CONSOLE_CPU_PERCENT), `${percent} %`);
    await page.browserContext().close();
  } finally {
    await gateway.end();
  }
});
