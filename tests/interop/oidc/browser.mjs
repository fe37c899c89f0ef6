// Drives a real browser for oidc.py: browser.mjs CHROMIUM, then one JSON command a line on standard input, one JSON answer a line.
import { createRequire } from 'node:module';
import path from 'node:path';
import readline from 'node:readline';
import { pathToFileURL } from 'node:url';

const require = createRequire(path.join(process.cwd(), 'package.json'));
const puppeteer = (await import(pathToFileURL(require.resolve('puppeteer-core')).href)).default;
const browser = await puppeteer.launch({
  executablePath: process.argv[2], headless: true, acceptInsecureCerts: true,
  args: ['--no-sandbox', '--disable-gpu', '--ignore-certificate-errors'],
});
let context, page;

async function settle() {
  await page.waitForNetworkIdle({ idleTime: 200, timeout: 20000 }).catch(() => {});
  return { url: page.url(), text: await page.evaluate(() => document.body ? document.body.innerText : '') };
}

const commands = {
  async fresh() {
    if (context) await context.close();
    context = await browser.createBrowserContext();
    page = await context.newPage();
    return {};
  },
  async open({ url }) {
    const response = await page.goto(url, { waitUntil: 'load', timeout: 30000 });
    return { status: response ? response.status() : 0, ...await settle() };
  },
  // Fills in fields and sends their form.
  async form({ fields, submit }) {
    for (const [selector, text] of Object.entries(fields)) {
      await page.waitForSelector(selector, { timeout: 20000 });
      await page.type(selector, text);
    }
    await page.waitForSelector(submit, { timeout: 20000 });
    await Promise.all([page.waitForNavigation({ waitUntil: 'load', timeout: 30000 }), page.click(submit)]);
    return settle();
  },
  async has({ selector }) {
    return { has: await page.$(selector) !== null };
  },
  async cookies() {
    return { cookies: await context.cookies() };
  },
  // Many requests of the page at a time; their statuses.
  async fetches({ url, many }) {
    return { statuses: await page.evaluate(async (url, many) => {
      const all = Array.from({ length: many }, () => fetch(url, { redirect: 'manual' }));
      return (await Promise.all(all)).map((answer) => answer.status);
    }, url, many) };
  },
};

console.log(JSON.stringify({ ready: await browser.version() }));
for await (const line of readline.createInterface({ input: process.stdin })) {
  const { command, ...rest } = JSON.parse(line);
  try {
    console.log(JSON.stringify(await commands[command](rest)));
  } catch (error) {
    console.log(JSON.stringify({ error: String(error), url: page ? page.url() : '' }));
  }
}
await browser.close();
