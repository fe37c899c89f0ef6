// Passkeys, with Chromium's virtual authenticator, against a real gateway: a part of `npm run test:browser`.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { ADMIN, Gateway, fill, launch, open, person, press, shows, text, until, visit } from './place.mjs';

let browser;
before(async () => {
  browser = await launch();
});
after(async () => {
  await browser?.close();
});

/** A device with a fingerprint reader, that says yes. */
async function authenticator(page) {
  const session = await page.createCDPSession();
  await session.send('WebAuthn.enable');
  const options = { protocol: 'ctap2', transport: 'internal', hasResidentKey: true, hasUserVerification: true, isUserVerified: true, automaticPresenceSimulation: true };
  const { authenticatorId } = await session.send('WebAuthn.addVirtualAuthenticator', { options });
  return { session, authenticatorId };
}

test('a user makes a passkey, logs in with it, and loses it', async () => {
  const gateway = new Gateway();
  try {
    await gateway.start();
    // Browsers make passkeys for names only.
    const byAddress = (await person(browser, gateway, 'ann', 'admin')).page;
    await open(byAddress, '#/users');
    await shows(byAddress, 'Open the console by a host name');
    await byAddress.browserContext().close();
    const there = { base: `http://localhost:${gateway.admin}` };
    const page = await visit(browser, there, null);
    const device = await authenticator(page);
    await until('the form is there', () => page.$('#token, #name'));
    if (await page.$('#token')) await press(page, 'Use a name and a password');
    await fill(page, '#name', 'ann');
    await fill(page, '#password', 'correct horse battery staple');
    await page.click('button[type=submit]');
    await page.waitForSelector('.shell');
    await open(page, '#/users');
    await shows(page, 'You have none yet');
    const panel = async () => {
      const panels = await page.$$('section.panel');
      for (const one of panels) if ((await one.evaluate((node) => node.innerText)).startsWith('Passkeys')) return one;
      return null;
    };
    const inPanel = async (selector, value) => {
      const id = await (await panel()).$eval(selector, (input) => input.id);
      await fill(page, `[id="${id}"]`, value);
    };
    await inPanel('input[type=text]', 'this laptop');
    await inPanel('input[type=password]', 'not the password at all');
    await press(page, 'Make a passkey');
    await shows(page, 'The current password is wrong');
    await inPanel('input[type=password]', 'correct horse battery staple');
    await press(page, 'Make a passkey');
    await shows(page, 'not used yet');
    const { credentials } = await device.session.send('WebAuthn.getCredentials', { authenticatorId: device.authenticatorId });
    assert.equal(credentials.length, 1);
    assert.equal(credentials[0].rpId, 'localhost');
    await press(page, 'Log out');
    await press(page, 'Log in with a passkey');
    await page.waitForSelector('.shell');
    assert.match(await text(page, '.who'), /^ann/);
    await open(page, '#/users');
    await shows(page, 'last used');
    // An authenticator that verifies nobody logs nobody in.
    await press(page, 'Log out');
    await page.waitForSelector('#token, #name');
    await device.session.send('WebAuthn.setUserVerified', { authenticatorId: device.authenticatorId, isUserVerified: false });
    await press(page, 'Log in with a passkey');
    await shows(page, 'The browser used no passkey', '.login');
    await device.session.send('WebAuthn.setUserVerified', { authenticatorId: device.authenticatorId, isUserVerified: true });
    // An administrator removes it.
    const operator = await visit(browser, gateway, ADMIN);
    await open(operator, '#/users');
    await press(operator, 'Remove the passkey this laptop of ann');
    await until('it is gone', async () => (await gateway.api('GET', '/v1/users')).data.items[0].passkeys.length === 0);
    await press(page, 'Log in with a passkey');
    await shows(page, 'This passkey is not known here', '.login');
    assert.deepEqual([...page.wrong, ...operator.wrong], []);
    await operator.browserContext().close();
    await page.browserContext().close();
  } finally {
    await gateway.end();
  }
});
