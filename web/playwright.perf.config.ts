import { defineConfig } from '@playwright/test'
import config from './playwright.config'

export default defineConfig({ ...config, testMatch: '*.perf.ts', reporter: 'line', timeout: 180_000 })
