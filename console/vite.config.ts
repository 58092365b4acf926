import preact from '@preact/preset-vite'
import { defineConfig } from 'vite'

export default defineConfig({
  base: './',
  plugins: [preact({ devToolsEnabled: false })],
  build: {
    outDir: '../src/penstock/service/console',
    emptyOutDir: true,
    assetsDir: 'assets',
    target: 'es2022',
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 700,
  },
  worker: { format: 'es' },
})
