// An OpenID provider that logs everybody in as the user of its `claims`.
import { createHash, generateKeyPairSync, sign } from 'node:crypto';
import http from 'node:http';

const encoded = (value) => Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString('base64url');

export async function provider() {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519');
  const logins = new Map();
  const kept = { claims: {} };
  const server = http.createServer(async (request, response) => {
    const url = new URL(request.url, kept.issuer);
    const json = (document) => response.setHeader('content-type', 'application/json').end(JSON.stringify(document));
    if (url.pathname === '/.well-known/openid-configuration') {
      return json({ issuer: kept.issuer, authorization_endpoint: `${kept.issuer}/auth`, token_endpoint: `${kept.issuer}/token`, jwks_uri: `${kept.issuer}/keys` });
    }
    if (url.pathname === '/keys') return json({ keys: [{ ...publicKey.export({ format: 'jwk' }), kid: 'k', alg: 'EdDSA' }] });
    if (url.pathname === '/auth') {
      const asked = Object.fromEntries(url.searchParams);
      const code = String(logins.size + 1);
      logins.set(code, asked);
      return response.writeHead(302, { location: `${asked.redirect_uri}?${new URLSearchParams({ code, state: asked.state })}` }).end();
    }
    let body = '';
    for await (const part of request) body += part;
    const form = new URLSearchParams(body);
    const asked = logins.get(form.get('code'));
    const challenge = createHash('sha256').update(form.get('code_verifier') ?? '').digest('base64url');
    if (!asked || asked.code_challenge !== challenge) return response.writeHead(400).end('{"error":"invalid_grant"}');
    const now = Math.floor(Date.now() / 1000);
    const claims = { iss: kept.issuer, aud: 'console', sub: 'u-1', exp: now + 300, iat: now, nonce: asked.nonce, ...kept.claims };
    const signed = `${encoded({ alg: 'EdDSA', kid: 'k' })}.${encoded(claims)}`;
    json({ access_token: 'at', id_token: `${signed}.${sign(null, Buffer.from(signed), privateKey).toString('base64url')}` });
  });
  server.listen(0, '127.0.0.1');
  await new Promise((done) => server.once('listening', done));
  kept.issuer = `http://127.0.0.1:${server.address().port}`;
  kept.end = () => server.close();
  return kept;
}
