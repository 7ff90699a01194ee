import { defineConfig, type Plugin } from 'vite'

// What Toolkeep fills in when it sends the page, for the dev server.
function placeholders(): Plugin {
  return {
    name: 'placeholders',
    apply: 'serve',
    transformIndexHtml: (html) => html.replaceAll('{{base}}', '/').replaceAll('{{nonce}}', 'dev').replaceAll('{{login}}', 'key'),
  }
}

const target = process.env.TOOLKEEP_URL ?? 'http://127.0.0.1:8080'
const key = process.env.TOOLKEEP_DEV_KEY

export default defineConfig({
  base: './',
  plugins: [placeholders()],
  build: {
    target: 'es2023',
    modulePreload: { polyfill: false },
    sourcemap: false,
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    rollupOptions: { output: { assetFileNames: 'assets/[name]-[hash][extname]', chunkFileNames: 'assets/[name]-[hash].js', entryFileNames: 'assets/[name]-[hash].js' } },
  },
  server: {
    proxy: Object.fromEntries(['/api', '/health', '/openapi.json'].map((path) => [path, {
      target,
      changeOrigin: true,
      // Pages can be built without logging in: the dev server sends this key.
      configure: (proxy) => proxy.on('proxyReq', (request) => {
        request.removeHeader('origin')
        if (key) request.setHeader('Authorization', `Bearer ${key}`)
      }),
    }])),
  },
})
