// Changes that another person approves, in Chromium, against a real gateway: a part of `npm run test:browser`.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Gateway, field, fill, launch, open, person, press, shows, target, text } from './place.mjs';

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

test('a change waits until another person approves it, and a stale one is not applied', async () => {
  const gateway = new Gateway();
  try {
    await gateway.start('', 'admin_approval: { roles: [write, admin] }');
    const begun = { proxies: [{ id: 'shop', hosts: ['shop.example.com'], listen_path: '/', backend_host: '127.0.0.1', backend_port: behind.port }] };
    assert.equal((await gateway.api('POST', '/v1/batch', begun)).status, 202);
    assert.equal((await gateway.api('POST', '/v1/changes/1/approve?emergency&note=begin')).status, 200);
    const ann = (await person(browser, gateway, 'ann', 'write')).page;
    const bob = (await person(browser, gateway, 'bob', 'write')).page;
    const rename = async (name, number) => {
      await open(ann, '#/routes/shop', field('/name'));
      await fill(ann, `${field('/name')} input`, name);
      await open(ann, '#/review');
      await fill(ann, '#note', `call it ${name}`);
      await press(ann, 'Apply');
      await shows(ann, `Change ${number} waits until another person approves it`);
    };
    await rename('the shop', 2);
    await rename('another shop', 3);
    assert.equal((await gateway.api('GET', '/v1/proxies/shop')).data.name, undefined);
    // The author sees it, and cannot approve it.
    await press(ann, 'Approvals', 'nav');
    await press(ann, '2', 'main');
    await shows(ann, 'The author does not approve');
    assert.ok(await ann.$eval('.page-head .primary', (button) => button.disabled));
    await press(bob, 'Approvals', 'nav');
    await shows(bob, 'proxies/shop');
    await press(bob, '2', 'main');
    await shows(bob, 'call it the shop');
    await shows(bob, 'name: the shop', '.diff');
    await fill(bob, '#decision-note', 'as agreed');
    await press(bob, 'Approve and apply');
    await shows(bob, 'Applied as revision 2');
    assert.equal((await gateway.api('GET', '/v1/proxies/shop')).data.name, 'the shop');
    await shows(bob, 'By bob. as agreed');
    // The other one was made to what was there before.
    await open(bob, '#/approvals/3', '.page-head .primary');
    await shows(bob, 'changed meanwhile');
    assert.ok(await bob.$eval('.page-head .primary', (button) => button.disabled));
    await open(ann, '#/approvals/3', '.page-head .primary');
    await press(ann, 'Withdraw');
    await shows(ann, 'The change is withdrawn');
    await rename('a third shop', 4);
    await open(bob, '#/approvals/4', '.page-head .primary');
    await press(bob, 'Reject');
    await shows(bob, 'The change is rejected');
    await open(bob, '#/approvals');
    await fill(bob, '.toolbar select', '');
    // The filter names all states, too.
    for (const state of ['approved', 'withdrawn', 'rejected']) await shows(bob, state, '.list');
    assert.equal((await gateway.api('GET', '/v1/proxies/shop')).data.name, 'the shop');
    assert.match(await text(bob, '.list'), /ann/);
    assert.deepEqual([...ann.wrong, ...bob.wrong], []);
    await ann.browserContext().close();
    await bob.browserContext().close();
  } finally {
    await gateway.end();
  }
});
