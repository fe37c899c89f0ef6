import { defineConfig } from 'vite';

// The gateway serves the result below `/console/`, under a policy without inline scripts and styles.
export default defineConfig({
  base: './',
  esbuild: { jsx: 'automatic', jsxImportSource: 'preact' },
  build: {
    target: 'es2022',
    modulePreload: false,
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    sourcemap: false,
    chunkSizeWarningLimit: 900,
    rollupOptions: { output: { manualChunks: { editor: ['codemirror', '@codemirror/lang-yaml'] } } },
  },
});
