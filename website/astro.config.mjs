import starlight from '@astrojs/starlight';
import { defineConfig } from 'astro/config';

// Where the sources can be edited, such as https://git.example/ferrum-edge/edit/main/website/; without it, pages have no
// "Edit page" link.
const { SITE_URL, SITE_EDIT_URL } = process.env;
const part = (label, directory, collapsed = true) => ({ label, collapsed, autogenerate: { directory } });

export default defineConfig({
  site: SITE_URL,
  trailingSlash: 'always',
  integrations: [
    starlight({
      title: 'ferrum-edge',
      description: 'An API gateway for HTTP/1.1, HTTP/2, HTTP/3, gRPC, WebSocket, TCP, TLS, UDP and DTLS.',
      editLink: SITE_EDIT_URL ? { baseUrl: SITE_EDIT_URL } : undefined,
      customCss: ['./src/styles/site.css'],
      lastUpdated: false,
      disable404Route: false,
      tableOfContents: { minHeadingLevel: 2, maxHeadingLevel: 3 },
      sidebar: [
        part('Start', 'start', false),
        part('Guides', 'guides', false),
        part('Run', 'run'),
        part('Watch', 'watch'),
        part('Reference', 'reference'),
        part('Moving here', 'moving'),
        part('Develop', 'develop'),
        part('Measure', 'measure'),
        part('Releases', 'releases'),
      ],
    }),
  ],
});
