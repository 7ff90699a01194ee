import { test as base, expect, type BrowserContext, type Page } from '@playwright/test'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'

const axeSource = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
export const url = process.env.TOOLKEEP_URL!
export const keys = JSON.parse(process.env.TOOLKEEP_KEYS ?? '{}') as Record<Role, string>
/** The MCP server behind, whose definitions POST /change changes. */
export const notes = process.env.TOOLKEEP_NOTES!

export type Role = 'admin' | 'agent' | 'approver' | 'auditor'

/** A request past the browser, as a role. */
export async function ask<T = Record<string, unknown>>(role: Role, method: string, path: string, body?: unknown): Promise<T> {
  const response = await fetch(url + path, { method, headers: { Authorization: `Bearer ${keys[role]}`, 'Content-Type': 'application/json' }, body: body === undefined ? undefined : JSON.stringify(body) })
  const text = await response.text()
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`)
  return (text === '' ? {} : JSON.parse(text)) as T
}

/** Logs the context in without the login page. */
export async function logIn(context: BrowserContext, key: string) {
  const response = await context.request.post(`${url}/api/v1/session`, { headers: { Authorization: `Bearer ${key}` } })
  expect(response.status()).toBe(201)
  const { csrf_token } = (await response.json()) as { csrf_token: string }
  await context.addInitScript(([token]) => { if (!localStorage.getItem('toolkeep.csrf:/')) localStorage.setItem('toolkeep.csrf:/', token!) }, [csrf_token])
}

/** No violation of WCAG 2.2 AA in the theme that is shown. */
export async function axe(page: Page) {
  await page.evaluate(axeSource)
  const violations = await page.evaluate(async () => {
    const run = (window as unknown as { axe: { run(where: Document, options: unknown): Promise<{ violations: { id: string; help: string; nodes: { html: string; failureSummary?: string }[] }[] }> } }).axe
    // What is behind an open dialog is hidden from all, its landmarks and heading too.
    const bare = document.querySelector('[role=dialog], [role=alertdialog]') === null
    const result = await run.run(document, { rules: { 'landmark-one-main': { enabled: bare }, 'page-has-heading-one': { enabled: bare } }, runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'], resultTypes: ['violations'] })
    return result.violations.map((v) => `${v.id}: ${v.help}\n  ${v.nodes.slice(0, 3).map((n) => `${n.html.slice(0, 200)} ${n.failureSummary ?? ''}`).join('\n  ')}`)
  })
  expect(violations, await page.title()).toEqual([])
}

/** Does the same in the light and the dark theme. */
export async function bothThemes(page: Page, check: (theme: 'light' | 'dark') => Promise<void>) {
  for (const theme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme: theme, reducedMotion: 'reduce' })
    await check(theme)
  }
  await page.emulateMedia({ colorScheme: null, reducedMotion: null })
}

/** A picture beside the tests, where TOOLKEEP_SHOTS says a directory. */
export async function shot(page: Page, name: string) {
  if (process.env.TOOLKEEP_SHOTS) await page.screenshot({ path: `${process.env.TOOLKEEP_SHOTS}/${name}.jpg`, type: 'jpeg', quality: 60 })
}

/** axe in both themes, with a picture of each. */
export async function looksRight(page: Page, name: string) {
  await expect(page.locator('h1').first()).toBeAttached()
  await bothThemes(page, async (theme) => {
    await axe(page)
    await shot(page, `${name}-${theme}-${page.viewportSize()!.width}`)
  })
}

/** What no page may do: break the content security policy, write errors to the console, ask other hosts. */
export function watch(page: Page, faults: string[], allowed: RegExp[] = []) {
  page.on('console', (message) => {
    if (message.type() === 'error' && !allowed.some((a) => a.test(message.text()))) faults.push(`console: ${message.text()}`)
  })
  page.on('pageerror', (err) => faults.push(`page: ${err.message}`))
  page.on('dialog', (dialog) => { faults.push(`dialog: ${dialog.message()}`); void dialog.dismiss() })
  page.on('request', (request) => {
    const to = new URL(request.url())
    if (/^https?:$/.test(to.protocol) && to.origin !== new URL(url).origin) faults.push(`request to ${to.origin}`)
  })
}

interface Fixtures {
  /** Logs in and returns a page of a browser of its own. */
  login: (role: Role, options?: { phone?: boolean }) => Promise<Page>
  /** What pages did that they may not do; the test fails on any. */
  faults: string[]
  /** Errors in the browser's log that the test expects, such as a refusal that it makes. */
  expects: RegExp[]
}

export const test = base.extend<Fixtures>({
  faults: [async ({}, give) => { const faults: string[] = []; await give(faults); expect(faults).toEqual([]) }, { auto: true }],
  expects: async ({}, give) => { await give([]) },
  page: async ({ page, faults, expects }, give) => { watch(page, faults, expects); await give(page) },
  login: async ({ browser, faults, expects }, give) => {
    const contexts: BrowserContext[] = []
    await give(async (role, options) => {
      const context = await browser.newContext(options?.phone ? { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true } : {})
      contexts.push(context)
      await logIn(context, keys[role])
      const page = await context.newPage()
      watch(page, faults, expects)
      return page
    })
    for (const context of contexts) await context.close()
  },
})

/** Waits until nothing on the page is being loaded. */
export const settled = (page: Page) => expect(page.locator('[aria-busy=true]')).toHaveCount(0)

export { expect }
