import { defineConfig } from '@playwright/test'

// Run by toolkeeptest/console, which starts the server. Tests named @more are left out of CI.
export default defineConfig({
  testDir: 'e2e',
  outputDir: 'e2e/out',
  workers: 1,
  fullyParallel: false,
  forbidOnly: true,
  timeout: 30_000,
  expect: { timeout: 10_000 },
  reporter: 'line',
  grepInvert: process.env.TOOLKEEP_E2E_ALL === 'true' ? undefined : /@more/,
  use: {
    baseURL: process.env.TOOLKEEP_URL,
    viewport: { width: 1280, height: 800 },
    locale: 'en-GB',
    launchOptions: { executablePath: process.env.TOOLKEEP_CHROMIUM ?? '/usr/bin/chromium-headless-shell', args: process.getuid?.() === 0 ? ['--no-sandbox'] : [] },
  },
})
