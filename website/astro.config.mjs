import { readFileSync } from 'node:fs';

import starlight from '@astrojs/starlight';
import { defineConfig } from 'astro/config';

// Where the sources can be edited, such as https://git.example/ferrum-edge/edit/main/website/; without it, pages have no
// "Edit page" link.
const { SITE_URL, SITE_EDIT_URL } = process.env;
const part = (label, directory, collapsed = true) => ({ label, collapsed, autogenerate: { directory } });

/** Puts each table into a box that scrolls by itself and can be reached by keyboard. */
function scrollableTables() {
  const wrap = (node) => {
    node.children = node.children?.map((child) => {
      wrap(child);
      if (child.tagName !== 'table') return child;
      const properties = { className: ['scrollable'], role: 'group', tabIndex: 0, ariaLabel: 'Table' };
      return { type: 'element', tagName: 'div', properties, children: [child] };
    });
  };
  return wrap;
}

/** Width and height of a PNG file, which are the first two words of its first chunk. */
const sizeOfPng = (path) => {
  const file = readFileSync(path);
  return { width: file.readUInt32BE(16), height: file.readUInt32BE(20) };
};

/** Reserves the place of each screenshot, so that text does not move when it arrives. */
function sizedImages() {
  const size = (node) => {
    const source = node.tagName === 'img' ? node.properties.src : undefined;
    if (source?.startsWith('/images/')) Object.assign(node.properties, sizeOfPng(new URL(`public${source}`, import.meta.url)));
    node.children?.forEach(size);
  };
  return size;
}

export default defineConfig({
  markdown: { rehypePlugins: [scrollableTables, sizedImages] },
  site: SITE_URL,
  trailingSlash: 'always',
  integrations: [
    starlight({
      title: 'ferrum-edge',
      description: 'An API gateway for HTTP/1.1, HTTP/2, HTTP/3, gRPC, WebSocket, TCP, TLS, UDP and DTLS.',
      editLink: SITE_EDIT_URL ? { baseUrl: SITE_EDIT_URL } : undefined,
      // The place for links to other sites, in the head of each page and in its menu on small screens.
      components: { SocialIcons: './src/components/Versions.astro' },
      customCss: ['./src/styles/site.css'],
      expressiveCode: { defaultProps: { frame: 'none', wrap: true } },
      tableOfContents: { minHeadingLevel: 2, maxHeadingLevel: 3 },
      sidebar: [
        part('Start', 'start', false),
        part('Guides', 'guides', false),
        part('Run', 'run'),
        part('Watch', 'watch'),
        {
          label: 'Reference',
          collapsed: true,
          items: [
            {
              label: 'Configuration',
              items: ['gateway', 'proxies', 'upstreams', 'consumers', 'plugin-configs', 'conditions', 'templates'].map(
                (name) => `reference/${name}`,
              ),
            },
            part('Plugins', 'reference/plugins'),
            ...['environment', 'commands', 'admin-api', 'error-codes', 'warnings', 'metrics', 'log-fields'].map(
              (name) => `reference/${name}`,
            ),
          ],
        },
        part('Moving here', 'moving'),
        part('Develop', 'develop'),
        part('Measure', 'measure'),
        part('Releases', 'releases'),
      ],
    }),
  ],
});
