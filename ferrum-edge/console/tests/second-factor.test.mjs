// A second factor, from the QR code to the login: a part of `npm run test:browser`.
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { after, before, test } from 'node:test';
import jsQR from 'jsqr';
import { Gateway, byName, fill, launch, open, person, press, shows, text, until } from './place.mjs';

let browser;
before(async () => {
  browser = await launch();
});
after(async () => browser?.close());

/** What a reader reads in the SVG of a code. */
async function scanned(page) {
  const { path, side } = await page.$eval('svg.qr-code', (svg) => ({ path: svg.querySelector('path').getAttribute('d'), side: svg.viewBox.baseVal.width }));
  const scale = 4;
  const width = side * scale;
  const pixels = new Uint8ClampedArray(width * width * 4).fill(255);
  for (const [, x, y, length] of path.matchAll(/M(\d+) (\d+)h(\d+)v1h-\d+z/g)) {
    for (let row = y * scale; row < (Number(y) + 1) * scale; row += 1) {
      for (let at = x * scale; at < (Number(x) + Number(length)) * scale; at += 1) pixels.fill(0, (row * width + at) * 4, (row * width + at) * 4 + 3);
    }
  }
  return jsQR(pixels, width, width)?.data;
}

/** The code of an authenticator app (RFC 6238) for a step of 30 s, counted from now. */
function codeOf(secret, later = 0) {
  const bits = [...secret].map((letter) => 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'.indexOf(letter).toString(2).padStart(5, '0')).join('');
  const key = Buffer.from(bits.match(/.{8}/g).map((byte) => parseInt(byte, 2)));
  const step = Buffer.alloc(8);
  step.writeBigUInt64BE(BigInt(Math.floor(Date.now() / 30_000) + later));
  const hash = createHmac('sha1', key).update(step).digest();
  const at = hash.at(-1) & 15;
  return String((hash.readUInt32BE(at) & 0x7fffffff) % 1_000_000).padStart(6, '0');
}

test('a user scans the code, confirms it, and needs a code from then on', async () => {
  const gateway = new Gateway();
  try {
    await gateway.start();
    const { page, password } = await person(browser, gateway, 'ann', 'write');
    await open(page, '#/users');
    await fill(page, '.panel:has(input[autocomplete=one-time-code]) input[autocomplete=current-password]', password);
    await press(page, 'Show the secret');
    await page.waitForSelector('svg.qr-code');
    const uri = await scanned(page);
    assert.match(uri, /^otpauth:\/\/totp\//);
    assert.ok((await text(page)).includes(uri), 'the code is the address that is shown');
    const secret = new URL(uri).searchParams.get('secret');
    await fill(page, 'input[inputmode=numeric]', '000000');
    await press(page, 'Confirm');
    await shows(page, 'code');
    await fill(page, 'input[inputmode=numeric]', codeOf(secret));
    await press(page, 'Confirm');
    await shows(page, 'Keep these recovery codes');
    const recovery = (await page.$eval('.panel pre:not(details *)', (node) => node.innerText)).trim().split('\n');
    assert.equal(recovery.length, 10);
    await press(page, 'I have kept the codes');
    await press(page, 'Log out');
    await byName(page, 'ann', password);
    await page.waitForSelector('input[autocomplete=one-time-code]');
    await fill(page, 'input[autocomplete=one-time-code]', recovery[0]);
    await page.click('button[type=submit]');
    await until('she is logged in', () => page.$('.shell'));
    assert.deepEqual(page.wrong, []);
    await page.browserContext().close();
  } finally {
    await gateway.end();
  }
});
