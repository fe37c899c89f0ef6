import { defineConfig } from 'vitest/config';

export default defineConfig({
  esbuild: { jsx: 'automatic', jsxImportSource: 'preact' },
  test: { dir: 'src', setupFiles: ['tests/unit-setup.mjs'] },
});
