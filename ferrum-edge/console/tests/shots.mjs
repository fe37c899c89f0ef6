// Takes the pictures of the book and the README: `npm run shots`.
import { join, resolve } from 'node:path';
import { ADMIN, Gateway, field, fill, launch, open, shows, target, text, until, visit } from './place.mjs';

const folder = resolve(import.meta.dirname, '../../../website/public/images');
const gateway = new Gateway();
const [one, two] = [await target(), await target()];
const browser = await launch();
try {
  await gateway.start();
  const proxy = (id, path, more = {}) => ({ id, hosts: ['shop.example.com'], listen_path: path, upstream_id: 'shop-servers', ...more });
  await gateway.api('POST', '/v1/batch?note=The+shop', {
    upstreams: [{ id: 'shop-servers', algorithm: 'least_latency', targets: [{ host: '127.0.0.1', port: one.port, weight: 3 }, { host: '127.0.0.1', port: two.port }, { host: '127.0.0.1', port: 9 }] }],
    proxies: [proxy('shop', '/'), proxy('shop-api', '/api'), proxy('checkout', '/checkout'), { id: 'blog', hosts: ['blog.example.com'], backend_host: '127.0.0.1', backend_port: two.port }],
    consumers: [{ id: 'ann', username: 'ann', acl_groups: ['staff'], credentials: { key_auth: { key: 'a-key-for-the-picture' } } }],
    plugin_configs: [
      { id: 'api-key', plugin_name: 'key_auth', scope: 'proxy', proxy_id: 'shop-api', config: {} },
      { id: 'api-limit', plugin_name: 'rate_limiting', scope: 'proxy', proxy_id: 'shop-api', config: { limits: [{ rate: 6000, per: '1m' }], limit_by: 'consumer' } },
      { id: 'api-groups', plugin_name: 'access_control', scope: 'proxy', proxy_id: 'shop-api', config: { allowed_groups: ['staff'] } },
    ],
  });
  const page = await visit(browser, gateway, ADMIN, { width: 1280, height: 800 });
  await open(page, '#/now');
  const end = Date.now() + 40_000;
  let n = 0;
  while (Date.now() < end) {
    n += 1;
    const wave = 6 + 5 * Math.sin(n / 40);
    await Promise.all([
      gateway.send('shop.example.com', '/'),
      gateway.send('shop.example.com', '/api/orders', n % 9 ? { 'x-api-key': 'a-key-for-the-picture' } : {}),
      n % 3 ? gateway.send('blog.example.com', '/') : gateway.send('shop.example.com', '/checkout/cart'),
      ...(n % 31 ? [] : [gateway.send('unknown.example.com', '/')]),
    ]);
    await new Promise((done) => setTimeout(done, 20 * wave));
  }
  await page.screenshot({ path: join(folder, 'console-now.png') });
  await open(page, '#/plugins/api-limit', field('/config/limits/0/rate'));
  await fill(page, `${field('/config/limits/0/rate')} input`, '0');
  await until('the finding is there', () => page.$(`${field('/config/limits/0/rate')} .error`));
  await page.screenshot({ path: join(folder, 'console-plugin.png') });
  await fill(page, `${field('/config/limits/0/rate')} input`, '3000');
  await until('it is valid', async () => (await text(page, '.state')) === 'Valid');
  await open(page, '#/review');
  await shows(page, 'api-limit');
  await page.screenshot({ path: join(folder, 'console-review.png') });
} finally {
  await browser.close();
  await gateway.end();
  one.end();
  two.end();
}
