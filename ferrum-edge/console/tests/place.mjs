// A gateway, targets and Chromium for one test file.
import { spawn, execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import http from 'node:http';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import puppeteer from 'puppeteer-core';

export const ADMIN = 'an-admin-token-of-the-tests';
export const WRITE = 'a-write-token-of-the-tests!';
export const READ = 'a-read-token-of-the-tests!!';
const root = resolve(import.meta.dirname, '../../..');
export const program = process.env.FERRUM_EDGE ?? join(root, 'target/debug/ferrum-edge');
const chromium = process.env.CHROMIUM ?? ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find((path) => existsSync(path));
/** Longer than anything here takes on a busy machine. */
export const PATIENCE = 60_000;

export async function freePort() {
  const server = net.createServer().listen(0, '127.0.0.1');
  await new Promise((done) => server.once('listening', done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

export async function until(what, check) {
  const end = Date.now() + PATIENCE;
  for (;;) {
    const found = await Promise.resolve(check()).catch(() => false);
    if (found) return found;
    if (Date.now() > end) throw new Error(`never: ${what}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

export class Gateway {
  constructor(mode = 'database') {
    this.mode = mode;
    this.folder = mkdtempSync(join(tmpdir(), 'ferrum-console-'));
  }

  /** `settings` are more of the gateway's, in YAML between braces. */
  async start(proxies = '', settings = '') {
    this.http ??= await freePort();
    this.admin ??= await freePort();
    const text = `gateway: { http: '127.0.0.1:${this.http}', https: off, admin: '127.0.0.1:${this.admin}', workers: 1${settings && `, ${settings}`} }\n${proxies}`;
    writeFileSync(join(this.folder, 'ferrum.yaml'), text);
    const args = ['run', 'ferrum.yaml', ...(this.more?.args ?? []), ...(this.more?.args[1] === 'control-plane' ? ['--db-url', `sqlite:${this.folder}/f.db`] : []), ...(!this.more && this.mode === 'database' ? ['--mode', 'database', '--db-url', `sqlite:${this.folder}/f.db`] : [])];
    const env = { ...process.env, FERRUM_ADMIN_TOKEN: ADMIN, FERRUM_ADMIN_WRITE_TOKEN: WRITE, FERRUM_ADMIN_READ_TOKEN: READ, FERRUM_DB_ENCRYPTION_KEY: 'ab'.repeat(32), ...this.more?.env };
    this.process = spawn(program, args, { cwd: this.folder, env, stdio: ['ignore', 'ignore', 'pipe'] });
    this.log = '';
    this.process.stderr.on('data', (data) => (this.log += data));
    await until(`the gateway is ready: ${this.log}`, async () => (await fetch(`${this.base}/readyz`)).ok);
    return this;
  }

  /** As a control plane with a database, whose edges connect at `fleet`. */
  async startControlPlane() {
    this.fleet ??= await freePort();
    this.more = { args: ['--mode', 'control-plane'], env: { FERRUM_FLEET_LISTEN: `127.0.0.1:${this.fleet}`, FERRUM_FLEET_ADDRESS: `127.0.0.1:${this.fleet}` } };
    return this.start();
  }

  /** As an edge that enrols by this invitation. */
  async startEdge(invitation) {
    this.more = { args: ['--mode', 'edge'], env: { FERRUM_EDGE_INVITATION: invitation, FERRUM_EDGE_STATE: join(this.folder, 'state'), FERRUM_ADMIN_TOKEN: ADMIN } };
    return this.start();
  }

  get base() {
    return `http://127.0.0.1:${this.admin}`;
  }

  async stop() {
    const gone = new Promise((done) => this.process.once('exit', done));
    this.process.kill('SIGTERM');
    await gone;
  }

  async end() {
    if (this.process && this.process.exitCode === null) await this.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }

  async api(method, path, body, token = ADMIN) {
    const response = await fetch(`${this.base}${path}`, { method, headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' }, body: body && JSON.stringify(body) });
    const text = await response.text();
    return { status: response.status, data: text ? JSON.parse(text) : undefined };
  }

  send(host, path, headers = {}) {
    return new Promise((done, failed) => {
      const request = http.request({ host: '127.0.0.1', port: this.http, path, headers: { host, ...headers } }, (response) => {
        response.resume();
        response.on('end', () => done(response.statusCode));
      });
      request.on('error', failed);
      request.end();
    });
  }
}

/** A target that answers anything. */
export async function target() {
  const server = http.createServer((_, response) => response.end('hello'));
  server.listen(0, '127.0.0.1');
  await new Promise((done) => server.once('listening', done));
  return { port: server.address().port, end: () => server.close() };
}

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** What axe finds on a page as it is, once no colour is on its way to another. */
export async function violations(page) {
  await page.evaluate(async () => {
    const frame = () => new Promise(requestAnimationFrame);
    // What has changed starts to move with a frame.
    await frame();
    await frame();
    await Promise.allSettled(document.getAnimations().map((animation) => animation.finished));
  });
  // The page's policy lets nobody add a script; the driver may.
  await page.setBypassCSP(true);
  await page.evaluate(axe);
  const found = await page.evaluate(() => window.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice'] }));
  return found.violations.map((one) => `${one.id}: ${one.help} (${one.nodes.map((node) => `${node.target} ${node.failureSummary}`).join(' | ')})`);
}

export const launch = () => puppeteer.launch({ executablePath: chromium, args: ['--no-sandbox', '--disable-dev-shm-usage'] });

/** A page that remembers every error: of scripts, of the policy, of requests to anywhere else. */
export async function visit(browser, gateway, token, { width = 1400, height = 900, dark = false } = {}) {
  const context = await browser.createBrowserContext();
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  await page.setViewport({ width, height });
  if (dark) await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: 'dark' }]);
  page.wrong = [];
  page.on('pageerror', (error) => page.wrong.push(`${error.message}\n${error.stack}`));
  page.on('console', (message) => {
    if (message.type() === 'error' && !/Failed to load resource/.test(message.text())) page.wrong.push(message.text());
  });
  page.on('request', (request) => {
    if (!request.url().startsWith(gateway.base) && !request.url().startsWith('data:') && !request.url().startsWith('blob:')) page.wrong.push(`asks ${request.url()}`);
  });
  page.on('dialog', (dialog) => dialog.type() === 'alert' ? (page.wrong.push(`alert: ${dialog.message()}`), dialog.dismiss()) : dialog.accept());
  await page.goto(`${gateway.base}/console/`);
  if (token) await logIn(page, token);
  return page;
}

export async function logIn(page, token) {
  await page.waitForSelector('#token');
  await fill(page, '#token', token);
  await page.click('button[type=submit]');
  await page.waitForSelector('.shell');
}

/** A page of a user who is new and has chosen a password, and the password. */
export async function person(browser, gateway, name, role) {
  const { status, data } = await gateway.api('POST', '/v1/users', { name, role });
  if (status !== 201) throw new Error(JSON.stringify(data));
  const base = `${gateway.base}/console`;
  const json = { 'content-type': 'application/json' };
  const first = await fetch(`${base}/session`, { method: 'POST', headers: json, body: JSON.stringify({ name, password: data.password }) });
  const cookie = first.headers.get('set-cookie').split(';')[0];
  const { csrf } = await first.json();
  const own = 'correct horse battery staple';
  const body = JSON.stringify({ old: data.password, new: own });
  const chosen = await fetch(`${base}/api/v1/users/${name}/password`, { method: 'POST', headers: { ...json, cookie, 'x-ferrum-csrf': csrf }, body });
  if (chosen.status !== 204) throw new Error(await chosen.text());
  const page = await visit(browser, gateway, null);
  await byName(page, name, own);
  await page.waitForSelector('.shell');
  return { page, password: own };
}

/** Sends a name and a password on the login page. */
export async function byName(page, name, password) {
  await until('the form is there', () => page.$('#token, #name'));
  if (await page.$('#token')) await press(page, 'Use a name and a password');
  await fill(page, '#name', name);
  await fill(page, '#password', password);
  await page.click('button[type=submit]');
}

export async function fill(page, selector, text) {
  const field = await page.waitForSelector(selector);
  await field.evaluate((input) => input.focus());
  await field.evaluate((input, text) => {
    const kind = input.tagName === 'TEXTAREA' ? HTMLTextAreaElement : input.tagName === 'SELECT' ? HTMLSelectElement : HTMLInputElement;
    Object.getOwnPropertyDescriptor(kind.prototype, 'value').set.call(input, text);
    input.dispatchEvent(new Event(input.tagName === 'SELECT' ? 'change' : 'input', { bubbles: true }));
    if (input.closest('.entry')) input.dispatchEvent(new Event('change', { bubbles: true }));
  }, text);
}

export async function open(page, hash, selector = 'main h1') {
  await page.evaluate((hash) => {
    location.hash = hash;
  }, hash);
  await page.waitForSelector(selector);
}

/** Focuses the YAML editor as soon as it is loaded. */
export async function focusEditor(page) {
  await page.waitForFunction(() => {
    const content = document.querySelector('.code-editor')?.shadowRoot?.querySelector('.cm-content');
    content?.focus();
    return content;
  });
}

export const text = (page, selector = 'main') => page.$eval(selector, (node) => node.innerText);
export const shows = (page, what, selector = 'main') =>
  until(`${selector} shows ${what}`, async () => (await text(page, selector)).includes(what)).catch(async (error) => {
    throw new Error(`${error.message}; it shows: ${await text(page, selector).catch(() => 'nothing')}`);
  });

/** Presses the button or link with this text. */
export async function press(page, label, within = 'body') {
  const found = await until(`there is ${label}`, async () => {
    for (const one of await page.$$(`${within} button, ${within} a`)) {
      const name = await one.evaluate((node) => (node.getAttribute('aria-label') ?? node.innerText).trim());
      if (name === label && !(await one.evaluate((node) => node.disabled))) return one;
    }
    return null;
  });
  await found.evaluate((node) => node.click());
}

export const field = (pointer) => `[data-pointer="${pointer}"]`;
export const hasProgram = () => existsSync(program) && !!chromium;
export const run = (args, cwd) => execFileSync(program, args, { cwd, encoding: 'utf8' });
