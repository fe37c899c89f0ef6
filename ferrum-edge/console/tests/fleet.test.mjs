// The page Fleet, against a real control plane with a real edge: a part of `npm run test:browser`.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { ADMIN, Gateway, fill, launch, open, press, shows, target, text, until, violations, visit } from './place.mjs';

let browser;
let behind;
before(async () => {
  browser = await launch();
  behind = await target();
});
after(async () => {
  await browser?.close();
  behind?.end();
});

test('an edge is invited, followed through a restart, and revoked', async () => {
  const plane = new Gateway();
  const edge = new Gateway();
  try {
    await plane.startControlPlane();
    const proxy = (id, path) => ({ id, listen_path: path, backend_host: '127.0.0.1', backend_port: behind.port });
    assert.equal((await plane.api('POST', '/v1/batch', { proxies: [proxy('eu-shop', '/eu'), proxy('us-shop', '/us')] })).status, 200);
    const page = await visit(browser, plane, ADMIN);
    await press(page, 'Fleet', 'nav');
    await shows(page, 'No edge has enrolled yet');
    assert.deepEqual(await violations(page), []);
    await press(page, 'Invite an edge');
    await fill(page, 'dialog input', 'eu-1');
    await press(page, 'Invite an edge', 'dialog');
    await shows(page, 'ferrum-fleet://');
    const invitation = /ferrum-fleet:\/\/\S+/.exec(await text(page))[0];
    // It waits, without its code, until it is used; another one is taken back.
    await shows(page, 'eu-1, group default');
    assert.equal((await plane.api('POST', '/v1/fleet/invitations', { name: 'lost', group: 'eu' })).status, 201);
    await shows(page, 'lost, group eu');
    assert.deepEqual(await violations(page), []);
    await press(page, 'Withdraw the invitation of lost');
    await press(page, 'Withdraw', 'dialog');
    await until('it is withdrawn', async () => {
      const { data } = await plane.api('GET', '/v1/fleet/invitations');
      return data.items.map((one) => one.name).join() === 'eu-1';
    });
    await until('the page follows', async () => !(await text(page)).includes('lost, group eu'));
    await edge.startEdge(invitation);
    await shows(page, 'eu-1');
    await shows(page, 'served');
    for (const value of ['light', 'dark']) {
      await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value }]);
      assert.deepEqual(await violations(page), [], value);
    }
    // A control plane is narrow on a phone, as every page is.
    const { width, height } = page.viewport();
    await page.setViewport({ width: 390, height });
    assert.ok((await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)) <= 0);
    await page.setViewport({ width, height });
    await until('the edge serves', async () => (await edge.send('a', '/us')) === 200);
    // A change reaches it, and the page follows.
    assert.equal((await plane.api('POST', '/v1/batch', { proxies: [proxy('more', '/more')] })).status, 200);
    await until('the edge serves the change', async () => (await edge.send('a', '/more')) === 200);
    const served = async () => {
      const { data } = await plane.api('GET', '/v1/fleet');
      return data.edges[0];
    };
    await until('the page shows the revision', async () => (await text(page)).includes(String((await served()).served.revision)));
    // So does the page of an object.
    await open(page, '#/routes/us-shop');
    await shows(page, '1 of 1 edges serve it as it is');
    await open(page, '#/fleet');
    await shows(page, 'eu-1');
    // The console of the edge is read only, and says why.
    const there = await visit(browser, edge, ADMIN);
    await open(there, '#/fleet');
    await shows(there, 'gets its configuration from a control plane');
    assert.deepEqual(await violations(there), []);
    assert.deepEqual(there.wrong, []);
    await there.browserContext().close();
    // An edge that is gone is shown as gone.
    await edge.stop();
    await shows(page, 'disconnected');
    await edge.start();
    await until('it is connected again', async () => (await served()).connected);
    await press(page, 'eu-1');
    await press(page, 'Revoke', 'dialog');
    await until('it is revoked', async () => (await served()).standing === 'revoked');
    await shows(page, 'revoked');
    assert.deepEqual(page.wrong, []);
    await page.browserContext().close();
  } finally {
    await edge.end();
    await plane.end();
  }
});
