// The console in Chromium, against real gateways: `npm run test:browser`.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { ADMIN, Gateway, READ, WRITE, field, fill, focusEditor, launch, logIn, open, press, shows, target, text, until, violations, visit } from './place.mjs';
import { provider } from './provider.mjs';

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

const shop = () => ({
  upstreams: [{ id: 'servers', targets: [{ host: '127.0.0.1', port: behind.port }, { host: '127.0.0.1', port: 9 }] }],
  proxies: [
    { id: 'shop', hosts: ['shop.example.com'], listen_path: '/', upstream_id: 'servers' },
    { id: 'api', hosts: ['shop.example.com'], listen_path: '/api', backend_host: '127.0.0.1', backend_port: behind.port },
    { id: 'old', hosts: ['shop.example.com'], listen_path: '/api', priority: -1, backend_host: '127.0.0.1', backend_port: behind.port },
  ],
  consumers: [{ id: 'ann', username: 'ann', acl_groups: ['staff'], credentials: { key_auth: { key: 'the-key-of-ann' } } }],
  plugin_configs: [
    { id: 'api-key', plugin_name: 'key_auth', scope: 'proxy', proxy_id: 'api', config: {} },
    { id: 'fw', plugin_name: 'waf', scope: 'proxy', proxy_id: 'shop', config: { mode: 'detect' } },
    { id: 'kept', plugin_name: 'response_cache', scope: 'proxy', proxy_id: 'shop', config: {} },
  ],
});

/** A gateway with the shop, for one test. */
async function withGateway(each, { mode = 'database', document = shop() } = {}) {
  const gateway = new Gateway(mode);
  try {
    await gateway.start(mode === 'file' ? JSON.stringify(document).slice(1, -1).replace(/^/, '').replace(/,"(upstreams|proxies|consumers|plugin_configs)":/g, '\n$1: ').replace(/^"(\w+)":/, '$1: ') : '');
    if (mode === 'database') {
      const { status, data } = await gateway.api('POST', '/v1/batch', document);
      assert.equal(status, 200, JSON.stringify(data));
    }
    await each(gateway);
  } finally {
    await gateway.end();
  }
}

const PAGES = ['now', 'logs', 'explain', 'sessions', 'routes', 'routes/shop', 'routes/new', 'upstreams', 'upstreams/servers', 'consumers', 'consumers/ann', 'plugins', 'plugins/new', 'plugins/api-key', 'access', 'certificates', 'firewall', 'cache', 'approvals', 'revisions', 'revisions/1', 'audit', 'settings', 'users', 'workspaces', 'review'];

test('every page shows without an error, and axe finds nothing', async () => {
  await withGateway(async (gateway) => {
    const found = [];
    for (const dark of [false, true]) {
      const page = await visit(browser, gateway, null, { dark });
      await page.waitForSelector('#token');
      assert.deepEqual(await violations(page), [], 'login');
      await logIn(page, ADMIN);
      await gateway.send('shop.example.com', "/?id=1'%20or%201=1--");
      for (const one of PAGES) {
        await open(page, `#/${one}`);
        await until(`${one} is there`, async () => !(await text(page)).includes('Loading…'));
        found.push(...(await violations(page)).map((text) => `${one}${dark ? ', dark' : ''}: ${text}`));
      }
      assert.deepEqual(page.wrong, []);
      await page.browserContext().close();
    }
    assert.deepEqual(found, []);
  });
});

test('a user of an OpenID provider logs in with the role of a group, and who has none is told', async () => {
  const idp = await provider();
  const gateway = new Gateway();
  try {
    await gateway.start('', `admin_oidc: { issuer: '${idp.issuer}', client_id: console, label: Company login, roles: { write: [developers] } }`);
    const page = await visit(browser, gateway, null);
    await press(page, 'Company login');
    await shows(page, 'You are in no group that has a role', '.login');
    assert.equal(new URL(page.url()).hash, '#/now', 'the address says it once');
    assert.deepEqual(await violations(page), []);
    await page.reload();
    await page.waitForSelector('#token');
    assert.ok(!(await text(page)).includes('You are in no group'));
    idp.claims = { preferred_username: 'ann', groups: ['developers'] };
    await press(page, 'Company login');
    await page.waitForSelector('.shell');
    assert.match(await text(page, '.who'), /^ann \(127\.0\.0\.1:\d+\)/);
    await page.reload();
    await page.waitForSelector('.shell');
    await press(page, 'Log out');
    await page.waitForSelector('#token');
    assert.deepEqual(page.wrong.filter((one) => !one.startsWith(`asks ${idp.issuer}`)), []);
    await page.browserContext().close();
  } finally {
    await gateway.end();
    idp.end();
  }
});

test('narrow screens scroll in one direction', async () => {
  await withGateway(async (gateway) => {
    const page = await visit(browser, gateway, ADMIN, { width: 360, height: 740 });
    for (const one of PAGES) {
      await open(page, `#/${one}`);
      await until(`${one} is there`, async () => !(await text(page)).includes('Loading…'));
      const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(over <= 0, `${one} is ${over} pixels too wide`);
    }
    // With a draft, the bar has one button more; a log shows why a request was refused.
    await open(page, '#/routes/shop');
    await fill(page, `${field('/name')} input`, 'The shop');
    await shows(page, '1 change', '.top');
    const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(over <= 0, `the page with a draft is ${over} pixels too wide`);
    await open(page, '#/logs');
    await shows(page, 'Following');
    await gateway.send('shop.example.com', '/api');
    await shows(page, 'unauthenticated');
    await press(page, 'Menu');
    await page.waitForSelector('.shell.open nav a');
    await page.browserContext().close();
  });
});

test('a newcomer adds a proxy with a key and a limit, a consumer, finds a refusal, and rolls back', async () => {
  await withGateway(
    async (gateway) => {
      const page = await visit(browser, gateway, ADMIN);
      await open(page, '#/now');
      await shows(page, 'First steps');
      await press(page, 'Add a proxy');
      await page.waitForSelector(field('/id'));
      assert.equal(await page.$('.state'), null, 'what nobody has begun has no problems');
      await fill(page, `${field('/id')} input`, 'blog');
      await fill(page, `${field('/hosts')} textarea`, 'blog.example.com');
      await fill(page, `${field('/backend_host')} input`, '127.0.0.1');
      // The gateway says what is missing, at its field.
      await shows(page, 'problem');
      await shows(page, 'backend_port is missing', '.form .errors');
      await fill(page, `${field('/backend_port')} input`, '70000');
      await until('the finding is at its field', () => page.$(`${field('/backend_port')} .error`));
      await fill(page, `${field('/backend_port')} input`, String(behind.port));
      await until('it is valid', async () => (await text(page, '.state')) === 'Valid');
      await press(page, 'Review and apply');
      // Protected before it is applied, in the same revision.
      await open(page, '#/access');
      await press(page, 'Protect blog');
      await fill(page, 'dialog textarea', 'staff');
      await fill(page, 'dialog input[type=number]', '2');
      await press(page, 'Add to draft', 'dialog');
      await open(page, '#/plugins');
      await shows(page, 'rate_limiting');
      assert.ok(!(await text(page)).includes('serving'), 'nothing of the draft is served');
      // Plugins stand with others of their kind.
      await open(page, '#/plugins/new');
      await shows(page, 'Authentication: identifies callers');
      await fill(page, 'input[type=search]', 'websockets');
      const families = () => page.$$eval('.cards', (all) => all.map((cards) => [cards.previousElementSibling.innerText.split(':')[0], cards.innerText.includes('ws_rate_limiting')]));
      await until('those that are searched for are left', async () => (await families()).some(([family, has]) => family === 'Admission' && has));
      assert.ok(!(await families()).some(([family]) => family === 'Authentication'));
      await open(page, '#/consumers/new');
      await fill(page, `${field('/username')} input`, 'bob');
      await fill(page, `${field('/id')} input`, 'bob');
      await fill(page, `${field('/acl_groups')} textarea`, 'staff');
      await press(page, 'New API key');
      const key = await page.$eval('.secret code', (node) => node.innerText);
      await press(page, 'Review and apply');
      await shows(page, 'consumers');
      assert.ok(!(await page.$$eval('.diff', (all) => all.map((one) => one.innerText).join())).includes(key), 'the review shows no credential');
      await fill(page, '#note', 'a blog');
      await press(page, 'Apply');
      await shows(page, 'Applied as revision 1');
      await shows(page, 'What next');
      await shows(page, 'revision 1', '.top');
      assert.equal(await gateway.send('blog.example.com', '/'), 401);
      assert.equal(await gateway.send('blog.example.com', '/', { 'x-api-key': key }), 200);
      assert.equal((await gateway.api('GET', '/v1/revisions')).data.items[0].note, 'a blog');
      // Its traffic, and why a request was refused.
      await open(page, '#/logs');
      await shows(page, 'Following');
      await gateway.send('blog.example.com', '/a');
      await shows(page, 'unauthenticated');
      await page.$$eval('.list-row button.link', (rows) => rows[0].click());
      await press(page, 'Explain this request', 'dialog');
      await shows(page, 'Taken by blog');
      await shows(page, 'key_auth');
      // The record names the caller, so that the limit is explained and not the missing key.
      for (let n = 0; n < 2; n += 1) await gateway.send('blog.example.com', '/b', { 'x-api-key': key });
      await open(page, '#/logs');
      await shows(page, 'Following');
      assert.equal(await gateway.send('blog.example.com', '/c', { 'x-api-key': key }), 429);
      await shows(page, 'rate_limited');
      await page.$$eval('.list-row button.link', (rows) => rows[0].click());
      await shows(page, 'rate_limiting.limits', 'dialog');
      await press(page, 'Explain this request', 'dialog');
      await shows(page, 'Explained as a request of bob');
      await until('the refusal is that of the limit', async () => /Refused\s+429 rate_limited/.test(await text(page)));
      // The key is never seen again.
      await open(page, '#/consumers/bob');
      await shows(page, 'key_auth');
      assert.ok(!(await page.content()).includes(key));
      await open(page, '#/revisions');
      await press(page, '1');
      await shows(page, 'blog.example.com');
      assert.ok(!(await page.content()).includes(key));
      await open(page, '#/routes/blog');
      await press(page, 'Delete');
      await press(page, 'Apply');
      await shows(page, 'Applied as revision 2');
      assert.equal(await gateway.send('blog.example.com', '/'), 404);
      await open(page, '#/revisions/1');
      await press(page, 'Roll back to here');
      await shows(page, 'blog proxies', 'dialog');
      await press(page, 'Roll back to here', 'dialog');
      await shows(page, 'Applied as revision 3');
      assert.equal(await gateway.send('blog.example.com', '/', { 'x-api-key': key }), 200);
      assert.deepEqual(page.wrong, []);
      await page.browserContext().close();
    },
    { document: {} },
  );
});

test('YAML and form are the same object', async () => {
  await withGateway(async (gateway) => {
    const page = await visit(browser, gateway, ADMIN);
    await open(page, '#/plugins/api-key', field('/plugin_name'));
    await press(page, 'YAML');
    const type = async (words) => {
      await focusEditor(page);
      await page.keyboard.down('Control');
      await page.keyboard.press('End');
      await page.keyboard.up('Control');
      await page.keyboard.type(words);
    };
    await type('enabled: false\n');
    await shows(page, '1 change', '.top');
    await press(page, 'Form');
    assert.equal(await page.$eval(`${field('/enabled')} select`, (select) => select.value), 'false');
    await fill(page, `${field('/enabled')} select`, 'true');
    await press(page, 'YAML');
    await until('the editor follows', () => page.evaluate(() => document.querySelector('.code-editor').shadowRoot.textContent.includes('enabled: true')));
    await type('no_such_key: 1\n');
    await shows(page, 'unknown key');
    await press(page, 'Commands');
    await shows(page, `curl -X PUT ${gateway.base}/v1/plugin_configs/api-key`);
    assert.deepEqual(page.wrong, []);
    await page.browserContext().close();
  });
});

test('two people change one object: both changes are seen and combined', async () => {
  await withGateway(async (gateway) => {
    const page = await visit(browser, gateway, ADMIN);
    await open(page, '#/routes/shop', field('/name'));
    await fill(page, `${field('/name')} input`, 'mine');
    await shows(page, '1 change', '.top');
    const { status } = await gateway.api('PATCH', '/v1/proxies/shop', { preserve_host_header: true });
    assert.equal(status, 200);
    await open(page, '#/review');
    await press(page, 'Apply');
    await shows(page, 'Changed by somebody else meanwhile');
    await shows(page, 'preserve_host_header: true', '.conflict');
    assert.ok(await page.$eval('.page-head button.primary', (button) => button.disabled));
    await press(page, 'Use the combination');
    await press(page, 'Apply');
    await shows(page, 'Applied as revision 3');
    const { data } = await gateway.api('GET', '/v1/proxies/shop');
    assert.deepEqual([data.name, data.preserve_host_header], ['mine', true]);
    // Somebody deletes what is being edited.
    await open(page, '#/routes/api', field('/name'));
    await fill(page, `${field('/name')} input`, 'again');
    await shows(page, '1 change', '.top');
    assert.equal((await gateway.api('DELETE', '/v1/proxies/old')).status, 204);
    assert.equal((await gateway.api('DELETE', '/v1/proxies/api')).status, 204);
    await open(page, '#/review');
    await press(page, 'Apply');
    await shows(page, 'Changed by somebody else meanwhile');
    await press(page, 'Keep theirs');
    await shows(page, 'nothing to apply');
    assert.deepEqual(page.wrong, []);
    await page.browserContext().close();
  });
});

test('roles and file mode are read only, and say why', async () => {
  await withGateway(async (gateway) => {
    const page = await visit(browser, gateway, READ);
    for (const one of ['routes', 'routes/shop', 'plugins', 'consumers/ann', 'upstreams/servers']) {
      await open(page, `#/${one}`);
      await shows(page, 'your role is “read”');
      assert.equal(await page.$('.primary'), null, one);
    }
    assert.ok(await page.$eval('.field input', (input) => input.readOnly));
    const writer = await visit(browser, gateway, WRITE);
    await open(writer, '#/revisions/1');
    await shows(writer, 'shop.example.com');
    assert.ok(!(await text(writer)).includes('Roll back'), 'a rollback needs the role admin');
    await page.browserContext().close();
    await writer.browserContext().close();
  });
  await withGateway(
    async (gateway) => {
      const page = await visit(browser, gateway, ADMIN);
      await open(page, '#/routes');
      await shows(page, 'from a file');
      await shows(page, 'shop.example.com');
      await open(page, '#/routes/shop');
      await shows(page, 'As served');
      await open(page, '#/consumers/ann');
      await shows(page, 'from a file');
      assert.ok(!(await page.content()).includes('the-key-of-ann'));
      for (const one of PAGES) await open(page, `#/${one}`);
      assert.deepEqual(page.wrong, []);
      await page.browserContext().close();
    },
    { mode: 'file' },
  );
});

test('wrong tokens are refused with the reason, and a session ends where it is ended', async () => {
  await withGateway(async (gateway) => {
    const page = await visit(browser, gateway, null);
    await fill(page, '#token', 'this is no token');
    await page.click('button[type=submit]');
    await shows(page, 'Unknown token');
    await logIn(page, ADMIN);
    const cookies = await page.browserContext().cookies();
    assert.ok(cookies.length === 1 && cookies[0].httpOnly && cookies[0].sameSite === 'Strict', JSON.stringify(cookies));
    assert.ok(!(await page.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage }) + document.cookie + location.href)).includes(ADMIN));
    await page.reload();
    await page.waitForSelector('.shell');
    await press(page, 'Log out');
    await page.waitForSelector('#token');
    await page.reload();
    await page.waitForSelector('#token');
    await page.browserContext().close();
  });
});

test('a gateway that goes away and comes back', async () => {
  await withGateway(async (gateway) => {
    const page = await visit(browser, gateway, ADMIN);
    await open(page, '#/routes/shop', field('/name'));
    await fill(page, `${field('/name')} input`, 'kept');
    await shows(page, '1 change', '.top');
    await gateway.stop();
    await shows(page, 'does not answer', '.shell');
    await gateway.start();
    // Sessions do not outlive the process; the draft outlives the login.
    await logIn(page, ADMIN);
    await shows(page, '1 change', '.top');
    await open(page, '#/review');
    await press(page, 'Apply');
    await shows(page, 'Applied as revision 2');
    assert.equal((await gateway.api('GET', '/v1/proxies/shop')).data.name, 'kept');
    await page.browserContext().close();
  });
});

test('a control plane shows its fleet', async () => {
  // As a control plane answers; the fleet's own tests have real ones.
  const at = (revision) => ({ epoch: 'e', revision, hash: `h${revision}` });
  const edge = (id, more) => ({ id, name: null, group: 'eu', standing: 'served', connected: true, version: '0.1.0', served: at(7), newest: at(7), refused: null, broken: { count: 0, objects: [] }, clock_skew_ms: null, enrolled_at: null, certificate_ends_at: '2027-01-01T00:00:00Z', revoked_at: null, ...more });
  const fleet = { epoch: 'e', address: 'cp:9443', listening: '0.0.0.0:9443', connected: 1, groups: [{ name: 'eu', position: at(7), proxies: ['shop-*'], objects: 12, edges: { served: 1, refused: 1 } }], edges: [edge('one', { name: 'eu-1' }), edge('two', { standing: 'refused', served: at(6), refused: { position: at(7), reason: '<b>port</b> 8443 is taken' }, broken: { count: 1, objects: [{ kind: 'proxies', id: 'shop', reason: 'no port' }] } })] };
  await withGateway(async (gateway) => {
    const page = await visit(browser, gateway, null);
    const asked = [];
    await page.setRequestInterception(true);
    page.on('request', async (request) => {
      const path = new URL(request.url()).pathname;
      const answer = (body, status = 200) => request.respond({ status, contentType: 'application/json', body: JSON.stringify(body) });
      if (path === '/console/api/v1/status') {
        const { data } = await gateway.api('GET', '/v1/status');
        return answer({ ...data, fleet: { role: 'control-plane', listening: '0.0.0.0:9443' } });
      }
      if (!path.startsWith('/console/api/v1/fleet')) return request.continue();
      asked.push(`${request.method()} ${path.slice(12)} ${request.postData() ?? ''}`.trim());
      if (request.method() === 'GET') return answer(fleet);
      return path.endsWith('/invitations') ? answer({ invitation: 'ferrum://one-time', expires_at: '2027-01-01T00:00:00Z' }, 201) : answer(fleet.edges[1]);
    });
    await logIn(page, ADMIN);
    await press(page, 'Fleet', 'nav');
    await shows(page, 'port</b> 8443 is taken');
    await shows(page, '6 → 7');
    assert.deepEqual(await violations(page), []);
    await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: 'dark' }]);
    assert.deepEqual(await violations(page), [], 'dark');
    await page.emulateMediaFeatures([]);
    await press(page, 'Invite an edge');
    await fill(page, 'dialog input', 'eu-3');
    await press(page, 'Invite an edge', 'dialog');
    await shows(page, 'ferrum://one-time');
    await press(page, 'two');
    await shows(page, 'no port', 'dialog');
    await press(page, 'Revoke', 'dialog');
    await until('it is revoked', () => asked.includes('POST /v1/fleet/edges/two/revoke'));
    assert.ok(asked.includes('POST /v1/fleet/invitations {"name":"eu-3","group":"eu"}'), asked.join('; '));
    assert.deepEqual(page.wrong, []);
    await page.browserContext().close();
  });
});

test('users log in by name, choose a password, and are removed', async () => {
  await withGateway(async (gateway) => {
    const page = await visit(browser, gateway, ADMIN);
    await open(page, '#/users');
    await press(page, 'Add a user');
    await fill(page, 'dialog input', 'ann');
    await fill(page, 'dialog select', 'write');
    await press(page, 'Add a user', 'dialog');
    await shows(page, 'The password of ann');
    const made = await page.$eval('.notice code', (node) => node.innerText);
    assert.deepEqual(await violations(page), []);
    const ann = await visit(browser, gateway, null);
    const logInAs = async (password) => {
      await until('the form is there', () => ann.$('#token, #name'));
      if (await ann.$('#token')) await press(ann, 'Use a name and a password');
      await fill(ann, '#name', 'ann');
      await fill(ann, '#password', password);
      await ann.click('button[type=submit]');
    };
    await logInAs('not the password at all');
    await shows(ann, 'The name or the password is wrong');
    await logInAs(made);
    await shows(ann, 'Choose a new password');
    const fields = await ann.$$('.panel input');
    assert.equal(fields.length, 2);
    await fill(ann, '.panel input[autocomplete=current-password]', made);
    await fill(ann, '.panel input[autocomplete=new-password]', 'correct horse battery');
    await press(ann, 'Change my password');
    await shows(ann, 'The password is changed');
    await logInAs('correct horse battery');
    await ann.waitForSelector('.shell');
    await open(ann, '#/users');
    await shows(ann, 'Only users with the role');
    await open(ann, '#/consumers/ann', field('/acl_groups'));
    await fill(ann, `${field('/acl_groups')} textarea`, 'staff\nadmins');
    await open(ann, '#/review');
    await press(ann, 'Apply');
    await shows(ann, 'Applied as revision 2');
    await open(page, '#/revisions');
    await shows(page, 'ann console');
    await open(page, '#/users');
    // With grants she sees what they cover, and no page about everything.
    await press(page, 'Grants of ann: everything');
    await fill(page, 'dialog textarea', '- objects: [ol*]\n  hosts: [shop.example.com]\n  colour: red');
    await press(page, 'Save', 'dialog');
    await shows(page, 'unknown field `colour`');
    await press(page, 'Grants of ann: everything');
    await fill(page, 'dialog textarea', '- objects: [ol*]\n  hosts: [shop.example.com]');
    assert.deepEqual(await violations(page), []);
    await press(page, 'Save', 'dialog');
    await until('the grants are there', async () => (await text(page)).includes('ol*'));
    await ann.reload();
    await logInAs('correct horse battery');
    await ann.waitForSelector('.shell');
    await open(ann, '#/now');
    await shows(ann, 'old');
    assert.doesNotMatch(await text(ann), /\n(shop|api)\n/);
    assert.deepEqual(await ann.$$eval('nav a', (links) => links.map((link) => link.innerText)), ['Routes', 'Upstreams', 'Plugins', 'Approvals']);
    await press(page, 'Remove ann');
    await shows(page, 'There is no user yet');
    await open(ann, '#/upstreams');
    await shows(ann, 'has changed or is gone');
    assert.deepEqual([...page.wrong, ...ann.wrong], []);
    await page.browserContext().close();
    await ann.browserContext().close();
  });
});

const XSS = ['<script>alert(1)</script>', '"><img src=x onerror=alert(1)>', "'-alert(1)-'", 'javascript:alert(1)', '<svg/onload=alert(1)>', '{{constructor.constructor("alert(1)")()}}', '</title><script>alert(1)</script>', '`${alert(1)}`', '\u202e<b>x</b>', '__proto__'];

test('text of others never becomes markup', async () => {
  const evil = XSS.join(' ');
  const document = {
    upstreams: [{ id: 'servers', name: `u ${evil}`.slice(0, 250), targets: [{ host: '127.0.0.1', port: behind.port, tags: { x: evil } }] }],
    proxies: [
      { id: 'shop', name: `p ${evil}`.slice(0, 250), hosts: ['shop.example.com'], listen_path: '/', upstream_id: 'servers' },
      ...XSS.map((one, n) => ({ id: `x${n}`, name: one, listen_path: `~^/x${n}/${one.replace(/[^\w<>"'= ]/g, '.')}`, backend_host: '127.0.0.1', backend_port: behind.port })),
    ],
    consumers: [{ id: 'evil', username: evil.slice(0, 250), custom_id: '<img src=x onerror=alert(2)>', acl_groups: XSS.slice(0, 9) }],
    plugin_configs: [
      { id: 'head', plugin_name: 'response_transformer', scope: 'proxy', proxy_id: 'shop', config: { headers: { set: { 'x-a': '<img src=x onerror=alert(3)>' } } } },
      { id: 'acl', plugin_name: 'key_auth', scope: 'proxy', proxy_id: 'x1', config: {} },
      { id: 'acl2', plugin_name: 'access_control', scope: 'proxy', proxy_id: 'x1', config: { allowed_groups: XSS.slice(0, 9), allowed_consumers: ['<img src=x onerror=alert(4)>'] } },
    ],
  };
  const gateway = new Gateway();
  try {
    await gateway.start();
    const { plugin_configs: configs, ...rest } = document;
    let answer = await gateway.api('POST', `/v1/batch?note=${encodeURIComponent(evil)}`, { ...rest, plugin_configs: configs.slice(1) });
    assert.equal(answer.status, 200, JSON.stringify(answer.data));
    const page = await visit(browser, gateway, ADMIN);
    await open(page, '#/logs');
    await shows(page, 'Following');
    for (const one of XSS) await gateway.send('shop.example.com', `/?q=${encodeURIComponent(one)}`, { 'user-agent': one.replace(/[^\x20-\x7e]/g, ''), 'x-api-key': 'x' });
    await gateway.send('shop.example.com', '/%3Cscript%3Ealert(1)%3C/script%3E');
    await shows(page, '/?q=');
    await page.$$eval('.list-row button.link', (rows) => rows[0].click());
    await press(page, 'Explain this request', 'dialog');
    for (const one of [...PAGES, ...XSS.map((_, n) => `routes/x${n}`), 'consumers/evil', 'plugins/acl2', `routes/${encodeURIComponent('<img src=x onerror=alert(5)>')}`, 'explain']) {
      await open(page, `#/${one}`);
      await until(`${one} is there`, async () => !(await text(page)).includes('Loading…'));
    }
    // What only the gateway itself says: names of certificates, reasons, paths.
    const odd = await visit(browser, gateway, null);
    await odd.setRequestInterception(true);
    odd.on('request', async (request) => {
      if (new URL(request.url()).pathname !== '/console/api/v1/status') return request.continue();
      const { data } = await gateway.api('GET', '/v1/status');
      const status = { ...data, version: evil, certificates: { count: 1, list: [{ at: evil, file: evil, ends_at: evil, renewed: false }] }, acme: { count: 1, list: [{ names: XSS, file: evil, status: evil, ends_at: null, next_order_at: null, failures: 1, problem: evil }] }, tasks: [{ name: evil, down: 1, last_failure: { cause: evil } }], services: { count: 1, list: [{ name: evil, error: evil }] }, warnings: { count: 1, list: [{ code: 'x', path: `proxies.${evil}`, message: evil, remedy: evil }] } };
      return request.respond({ contentType: 'application/json', body: JSON.stringify(status) });
    });
    await logIn(odd, ADMIN);
    for (const one of ['certificates', 'now', 'routes']) {
      await open(odd, `#/${one}`);
      await shows(odd, '<script>alert(1)</script>', '.shell');
    }
    await open(odd, '#/certificates');
    await odd.$eval('main details', (details) => (details.open = true));
    await shows(odd, `curl -X POST '${gateway.base}/v1/acme/renew?name=`);
    await shows(odd, 'ferrum-edge acme renew ');
    assert.equal(await odd.$$eval('script:not([src]), img, svg[onload], b, iframe', (found) => found.length), 0);
    assert.deepEqual(odd.wrong, []);
    await odd.browserContext().close();
    // Typed into forms, too.
    await open(page, '#/routes/shop', field('/name'));
    for (const one of XSS) await fill(page, `${field('/name')} input`, one);
    await fill(page, `${field('/hosts')} textarea`, XSS.join('\n'));
    await shows(page, 'problem');
    await open(page, '#/review');
    await shows(page, '<script>alert(1)</script>');
    await press(page, 'Validate');
    await shows(page, 'refuses these changes');
    // No element of a payload is in the page, and no script of one has run.
    assert.equal(await page.$$eval('script:not([src]), img, svg[onload], b, iframe', (found) => found.length), 0);
    assert.deepEqual(page.wrong, []);
    await page.browserContext().close();
  } finally {
    await gateway.end();
  }
});

test('pages of another site can neither frame nor read the console', async () => {
  await withGateway(async (gateway) => {
    const http = await import('node:http');
    const other = http.createServer((_, response) => {
      response.setHeader('content-type', 'text/html');
      response.end(`<title>other</title><iframe src="${gateway.base}/console/"></iframe>`);
    });
    other.listen(0, '127.0.0.1');
    await new Promise((done) => other.once('listening', done));
    try {
      const page = await visit(browser, gateway, ADMIN);
      const evil = await page.browserContext().newPage();
      await evil.goto(`http://localhost:${other.address().port}/`);
      const frame = await until('the frame is there', () => evil.frames()[1]);
      await until('the frame is refused', async () => frame.url().startsWith('chrome-error:') || !(await frame.evaluate(() => document.body?.innerText ?? '')).includes('ferrum-edge'));
      const tried = await evil.evaluate(async (base) => {
        const results = [];
        for (const init of [{}, { mode: 'no-cors' }, { method: 'POST', body: '{}', mode: 'no-cors' }, { method: 'DELETE' }]) {
          try {
            const response = await fetch(`${base}/console/api/v1/consumers/ann`, { credentials: 'include', ...init });
            results.push(response.type === 'opaque' ? 'opaque' : response.status);
          } catch {
            results.push('refused');
          }
        }
        return results;
      }, gateway.base);
      assert.ok(tried.every((one) => one === 'refused' || one === 'opaque' || one >= 400), JSON.stringify(tried));
      assert.equal((await gateway.api('GET', '/v1/consumers/ann')).status, 200, 'nothing was deleted');
      await page.browserContext().close();
    } finally {
      other.close();
    }
  });
});

test('30,000 proxies are listed, searched and changed without a pause', async () => {
  const gateway = new Gateway();
  try {
    await gateway.start();
    const all = (from, to) => Array.from({ length: to - from }, (_, n) => ({ id: `p${String(from + n).padStart(5, '0')}`, hosts: [`h${(from + n) % 3000}.example.com`], listen_path: `/p${from + n}`, backend_host: '127.0.0.1', backend_port: behind.port }));
    for (let n = 0; n < 30_000; n += 10_000) assert.equal((await gateway.api('POST', '/v1/batch', { proxies: all(n, n + 10_000) })).status, 200);
    const page = await visit(browser, gateway, ADMIN);
    await page.evaluate(() => {
      window.slow = 0;
      new PerformanceObserver((list) => list.getEntries().forEach((entry) => (window.slow = Math.max(window.slow, entry.duration)))).observe({ type: 'event', durationThreshold: 16, buffered: true });
    });
    await open(page, '#/routes');
    await shows(page, 'p00000');
    await until('all are there', async () => (await text(page, '.toolbar')).includes('30,000'));
    await until('loading is over', async () => !(await text(page, '.toolbar')).includes('…'));
    const drawn = await page.$$eval('.list-row', (rows) => rows.length);
    assert.ok(drawn < 100, `${drawn} rows are drawn`);
    await page.evaluate(() => (window.slow = 0));
    await page.click('.toolbar input');
    await page.keyboard.type('p29999');
    await shows(page, '/p29999');
    await until('one is left', async () => (await text(page, '.toolbar')).includes('1 of 30,000'));
    await press(page, 'p29999');
    await fill(page, `${field('/name')} input`, 'the last');
    await shows(page, '1 change', '.top');
    const slow = await page.evaluate(() => window.slow);
    console.log(`the slowest interaction with 30,000 proxies took ${slow} ms`);
    assert.ok(slow < Number(process.env.CONSOLE_SLOW_MS ?? 200), `${slow} ms`);
    await open(page, '#/review');
    await press(page, 'Apply');
    await shows(page, 'Applied as revision');
    assert.equal((await gateway.api('GET', '/v1/proxies/p29999')).data.name, 'the last');
    assert.deepEqual(page.wrong, []);
    await page.browserContext().close();
  } finally {
    await gateway.end();
  }
});

test('what needs attention is what the status says, also of targets that only fail in traffic', async () => {
  await withGateway(async (gateway) => {
    const dead = { proxies: [{ id: 'dead', hosts: ['dead.example.com'], listen_path: '/', backend_host: '127.0.0.1', backend_port: 9 }] };
    assert.equal((await gateway.api('POST', '/v1/batch', dead)).status, 200);
    await gateway.send('dead.example.com', '/');
    const page = await visit(browser, gateway, ADMIN);
    await shows(page, 'proxies.dead 127.0.0.1:9: an attempt failed');
    await shows(page, 'start the target, or correct its host and port');
    const { data } = await gateway.api('GET', '/v1/status');
    for (const one of data.problems.list) await shows(page, one.about);
    await shows(page, String(data.problems.errors), 'nav [aria-current]');
    await press(page, (await page.$eval('.troubles a', (link) => link.innerText)).trim());
    await shows(page, 'dead', 'main h1');
    await open(page, '#/explain');
    await fill(page, '#url', 'http://dead.example.com/');
    await press(page, 'Explain', 'main');
    await shows(page, '127.0.0.1:9: the last attempt failed: connect_failed');
    assert.deepEqual(page.wrong, []);
    await page.browserContext().close();
  });
});

test('only what the gateway accepts is called valid, and a stored object keeps its id', async () => {
  await withGateway(async (gateway) => {
    const page = await visit(browser, gateway, ADMIN);
    await open(page, '#/routes/new');
    await fill(page, `${field('/id')} input`, 'a b/c');
    await fill(page, `${field('/backend_host')} input`, '127.0.0.1');
    await fill(page, `${field('/backend_port')} input`, '80');
    await shows(page, "can't be an id");
    await shows(page, '1 problem', 'main [role=status]');
    await fill(page, `${field('/id')} input`, 'abc');
    await shows(page, 'Valid', 'main [role=status]');
    await open(page, '#/routes/shop');
    await shows(page, 'shop', 'main h1');
    await press(page, 'YAML');
    await focusEditor(page);
    await page.keyboard.down('Control');
    await page.keyboard.press('a');
    await page.keyboard.up('Control');
    await page.keyboard.type('id: other\nlisten_path: /');
    await shows(page, 'An object keeps its id');
    await shows(page, '1 problem', 'main [role=status]');
    assert.ok(!(await text(page)).includes('Review and apply'), 'what can not be read is not applied');
    await page.browserContext().close();
  });
});
