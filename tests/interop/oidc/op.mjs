// An OpenID provider (npm oidc-provider) for oidc.py: op.mjs PORT APP BACKCHANNEL. Access tokens live for five seconds.
// GET /count/<grant> says how often tokens were given by that grant.
import { createRequire } from 'node:module';
import http from 'node:http';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const require = createRequire(path.join(process.cwd(), 'package.json'));
const { Provider } = await import(pathToFileURL(require.resolve('oidc-provider')).href);
const [port, app, backchannel] = process.argv.slice(2);
const issuer = `http://127.0.0.1:${port}`;
const op = new Provider(issuer, {
  clients: [{
    client_id: 'edge', client_secret: 'a secret of the gateway, long enough',
    redirect_uris: [`${app}/oidc/callback`], post_logout_redirect_uris: [`${app}/bye`],
    grant_types: ['authorization_code', 'refresh_token'], response_types: ['code'],
    backchannel_logout_uri: backchannel, backchannel_logout_session_required: true,
  }],
  features: { backchannelLogout: { enabled: true }, rpInitiatedLogout: { enabled: true }, devInteractions: { enabled: true } },
  pkce: { required: () => true },
  scopes: ['openid', 'profile', 'email', 'offline_access'],
  issueRefreshToken: async () => true,
  ttl: { AccessToken: 5, IdToken: 3600, RefreshToken: 3600, Session: 3600, Grant: 3600, Interaction: 600 },
  // The library refuses to call loopback addresses by itself.
  fetch: (url, options) => { delete options.dispatcher; return fetch(url, options); },
});
const counts = { authorization_code: 0, refresh_token: 0 };
op.on('grant.success', (context) => { counts[context.oidc.params.grant_type] += 1; });
const handle = op.callback();
http.createServer((request, response) => {
  const counted = /^\/count\/(\w+)$/.exec(request.url);
  if (!counted) return handle(request, response);
  response.end(String(counts[counted[1]]));
}).listen(Number(port), '127.0.0.1', () => console.log('ready'));
