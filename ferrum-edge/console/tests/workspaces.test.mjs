// The page Workspaces, against a real control plane: a part of `npm run test:browser`.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { ADMIN, READ, Gateway, fill, launch, open, press, shows, text, visit } from './place.mjs';

let browser;
before(async () => {
  browser = await launch();
});
after(async () => {
  await browser?.close();
});

test('a workspace is made, seen with who has it, renamed and removed', async () => {
  const plane = new Gateway();
  try {
    await plane.startControlPlane();
    const page = await visit(browser, plane, ADMIN);
    await press(page, 'Workspaces', 'nav');
    await shows(page, 'There is no workspace yet');
    await press(page, 'Add a workspace');
    await fill(page, 'dialog input[type=text]', 'team-a');
    await fill(page, 'dialog textarea[data-list=objects]', 'team-a-*\nshared');
    await fill(page, 'dialog textarea[data-list=hosts]', 'A.example');
    await press(page, 'Save', 'dialog');
    // The form stays open with what is wrong.
    await shows(page, 'no host', 'dialog');
    await fill(page, 'dialog textarea[data-list=hosts]', '*.a.example');
    assert.match(await page.$eval('dialog details', (details) => ((details.open = true), details.innerText)), /workspaces set team-a change\.yaml/);
    await press(page, 'Save', 'dialog');
    await shows(page, 'team-a-*, shared, *.a.example');
    await shows(page, 'nobody');
    const made = await plane.api('POST', '/v1/users', { name: 'ann', role: 'write', grants: [{ workspace: 'team-a' }] });
    assert.equal(made.status, 201);
    // A group of edges gets it by the page Fleet.
    assert.equal((await plane.api('POST', '/v1/fleet/invitations', { name: 'eu-1', group: 'eu' })).status, 201);
    await open(page, '#/fleet');
    await press(page, 'Edit eu');
    await page.click('dialog input[type=checkbox]');
    await fill(page, 'dialog textarea[rows="3"]', 'team-a');
    await press(page, 'Apply', 'dialog');
    await shows(page, 'workspace team-a');
    await open(page, '#/workspaces');
    await shows(page, 'users: ann (write); groups of edges: eu');
    await press(page, 'Rename team-a');
    await fill(page, 'dialog input', 'crew-a');
    await press(page, 'Rename', 'dialog');
    await shows(page, 'crew-a');
    await shows(page, 'users: ann (write); groups of edges: eu');
    assert.deepEqual((await plane.api('GET', '/v1/users')).data.items.find((user) => user.name === 'ann').grants, [{ workspace: 'crew-a' }]);
    // Edges would lose its proxies.
    await press(page, 'Remove crew-a');
    await shows(page, 'assign others to them first');
    assert.equal((await plane.api('PUT', '/v1/fleet/groups/eu', { proxies: null })).status, 204);
    await press(page, 'Remove crew-a');
    await shows(page, 'There is no workspace yet');
    assert.deepEqual(page.wrong, []);
    await page.browserContext().close();
    // Who only reads is told why nothing is shown.
    const reader = await visit(browser, plane, READ);
    await open(reader, '#/workspaces');
    assert.match(await text(reader), /Only users with the role .admin. see and change workspaces/);
    assert.deepEqual(reader.wrong, []);
    await reader.browserContext().close();
  } finally {
    await plane.end();
  }
});
