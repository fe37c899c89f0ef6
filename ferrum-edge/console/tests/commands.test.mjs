// The commands that dialogs show do what the dialogs do: a part of `npm run test:browser`.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { dirname } from 'node:path';
import { after, before, test } from 'node:test';
import { ADMIN, Gateway, fill, launch, open, press, program, shows, until, violations, visit } from './place.mjs';

let browser;
let plane;
before(async () => {
  browser = await launch();
  plane = new Gateway();
  await plane.startControlPlane();
});
after(async () => {
  await browser?.close();
  await plane?.end();
});

/** The command lines of a dialog or page. */
async function commands(page, within = 'dialog') {
  await page.$$eval(`${within} details`, (all) => all.forEach((one) => (one.open = true)));
  const lines = await page.$$eval(`${within} pre`, (all) => all.map((one) => one.textContent));
  for (const line of lines) assert.ok(!line.includes(ADMIN), line);
  assert.deepEqual(await violations(page), []);
  return lines;
}

/** As a person would: pasted into a shell, in a folder of one's own, with the token in the environment. */
function sh(line, env = {}) {
  const path = `${dirname(program)}:${process.env.PATH}`;
  return execFileSync('sh', ['-ec', line.replace(/^curl|(?<=\| )curl/, 'curl -sS --fail-with-body')], { cwd: plane.folder, encoding: 'utf8', env: { ...process.env, PATH: path, FERRUM_ADMIN_TOKEN: ADMIN, ...env } });
}

const user = async (name) => (await plane.api('GET', '/v1/users')).data.items.find((one) => one.name === name);
const close = (page) => press(page, 'Close', 'dialog');

test('users, grants and workspaces', async () => {
  const page = await visit(browser, plane, ADMIN);
  await open(page, '#/users');
  await press(page, 'Add a user');
  await fill(page, 'dialog input', 'ann');
  const [curl, cli] = await commands(page);
  sh(curl);
  assert.equal((await user('ann')).role, 'read');
  await fill(page, 'dialog input', 'bob');
  sh((await commands(page))[1]);
  assert.equal((await user('bob')).role, 'read');
  assert.match(cli, /ferrum-edge users add ann --role read --admin/);
  await close(page);
  await page.reload();
  await shows(page, 'bob');
  await press(page, 'Grants of ann: everything');
  await fill(page, 'dialog textarea', '- objects: ["team-*"]\n');
  for (const line of await commands(page)) {
    sh(line);
    assert.deepEqual((await user('ann')).grants, [{ objects: ['team-*'] }]);
    assert.equal((await plane.api('PATCH', '/v1/users/ann', { grants: null })).status, 200);
  }
  await close(page);
  await press(page, 'Commands for bob');
  const lines = await commands(page);
  assert.equal(lines.length, 10, 'curl and CLI for role, password, second factor twice, removal');
  // Those that name what is there already change nothing; the last one removes.
  for (const line of lines.slice(0, 6)) sh(line);
  assert.equal((await user('bob')).totp_required, true);
  sh(lines.at(-1));
  assert.equal(await user('bob'), undefined);
  await close(page);
  await open(page, '#/workspaces');
  await press(page, 'Add a workspace');
  await fill(page, 'dialog input[type=text]', 'team-a');
  await fill(page, 'dialog textarea[data-list=objects]', 'team-a-*');
  const workspace = await commands(page);
  sh(workspace.find((line) => line.startsWith('cat')));
  assert.deepEqual((await plane.api('GET', '/v1/workspaces')).data.items.map((one) => one.name), ['team-a']);
  await close(page);
  await page.reload();
  await press(page, 'Rename team-a');
  await fill(page, 'dialog input', 'crew-a');
  sh((await commands(page))[1]);
  assert.deepEqual((await plane.api('GET', '/v1/workspaces')).data.items.map((one) => one.name), ['crew-a']);
  assert.deepEqual(page.wrong, []);
  await page.browserContext().close();
});

test('invitations, groups and edges', async () => {
  const page = await visit(browser, plane, ADMIN);
  await open(page, '#/fleet');
  await press(page, 'Invite an edge');
  await fill(page, 'dialog input', 'eu-1');
  await fill(page, 'dialog input[list]', 'eu');
  const invitations = (await commands(page)).map((line) => sh(line));
  for (const invitation of invitations) assert.match(invitation, /ferrum-fleet:\/\//);
  await close(page);
  // The page may still show the one before: each has its own name.
  for (const [which, name] of ['lost-1', 'lost-2'].entries()) {
    sh(`ferrum-edge fleet invite --name ${name}`);
    await press(page, `Withdraw the invitation of ${name}`);
    sh((await commands(page))[which]);
    const waits = async () => (await plane.api('GET', '/v1/fleet/invitations')).data.items.some((one) => one.name === name);
    await until('it is withdrawn', async () => !(await waits()));
    await close(page);
  }
  await press(page, 'Edit eu');
  await page.click('dialog input[type=checkbox]');
  await fill(page, 'dialog textarea', 'eu-*\nstatus');
  const proxies = async () => (await plane.api('GET', '/v1/fleet')).data.groups.find((group) => group.name === 'eu').proxies;
  for (const line of await commands(page)) {
    sh(line);
    await until('the group is assigned', async () => (await proxies())?.join() === 'eu-*,status');
    assert.equal((await plane.api('PUT', '/v1/fleet/groups/eu', { proxies: null })).status, 204);
  }
  await close(page);
  const edge = new Gateway();
  try {
    await edge.startEdge(/ferrum-fleet:\/\/[^\s"]+/.exec(invitations[1])[0]);
    await press(page, 'eu-1');
    const lines = await commands(page);
    assert.equal(lines.length, 10, 'curl and CLI for name, group, revocation, invitation, removal');
    for (const line of lines.slice(0, 4)) sh(line);
    sh(lines[5]);
    await until('it is revoked', async () => (await plane.api('GET', '/v1/fleet')).data.edges[0].standing === 'revoked');
    for (const line of lines.slice(6, 8)) assert.match(sh(line), /ferrum-fleet:\/\//);
    sh(lines[8]);
    assert.deepEqual((await plane.api('GET', '/v1/fleet')).data.edges, []);
  } finally {
    await edge.end();
  }
  assert.deepEqual(page.wrong, []);
  await page.browserContext().close();
});
