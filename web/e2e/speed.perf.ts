import { expect, test, type Page } from '@playwright/test'
import { keys, logIn, url } from './fixtures'

// Run by make console-perf against 10,000 tools and 100,000 calls.
const most = 100 // ms that a task may take on the page's main thread

interface TraceEvent { name: string; ph: string; pid: number; tid: number; dur?: number; ts: number; args: { name?: string } }

// longest is the longest task of the page's main thread while something is done, in ms.
async function longest(page: Page, what: string, act: () => Promise<void>): Promise<number> {
  const browser = page.context().browser()!
  await browser.startTracing(page, { categories: ['devtools.timeline', 'toplevel', 'disabled-by-default-devtools.timeline'] })
  await act()
  const trace = JSON.parse((await browser.stopTracing()).toString()) as { traceEvents: TraceEvent[] }
  const main = trace.traceEvents.filter((e) => e.name === 'thread_name' && e.args.name === 'CrRendererMain').map((e) => `${e.pid}/${e.tid}`)
  const tasks = trace.traceEvents.filter((e) => (e.name === 'RunTask' || e.name === 'ThreadControllerImpl::RunTask') && main.includes(`${e.pid}/${e.tid}`)).map((e) => (e.dur ?? 0) / 1000).sort((a, b) => b - a)
  expect(tasks.length, 'tasks in the trace').toBeGreaterThan(0)
  process.stdout.write(`SPEED ${what}: longest task ${tasks[0]!.toFixed(1)} ms, ${tasks.length} tasks, ${tasks.filter((t) => t > 50).length} above 50 ms\n`)
  return tasks[0]!
}

async function scroll(page: Page) {
  const grid = page.getByRole('grid')
  await grid.hover()
  for (let i = 0; i < 60; i++) {
    await page.mouse.wheel(0, 1500)
    await page.waitForTimeout(30)
  }
  await page.keyboard.press('Tab')
}

test('scrolling, filtering and typing make no task above 100 ms', async ({ browser }) => {
  test.setTimeout(180_000)
  const context = await browser.newContext()
  await logIn(context, keys.admin)
  const page = await context.newPage()
  await page.goto('/tools')
  await expect(page.getByRole('grid')).toHaveAttribute('aria-rowcount', /1\d{4}/)
  const found: Record<string, number> = {}
  found.tools = await longest(page, 'scrolling 10,000 tools', () => scroll(page))
  found.type = await longest(page, 'typing a search', async () => {
    await page.getByRole('searchbox').or(page.getByRole('textbox')).first().pressSequentially('order a book for tomorrow', { delay: 60 })
    await page.waitForTimeout(1500)
  })
  await page.goto('/calls')
  await expect(page.getByRole('grid').getByRole('row').nth(5)).toBeVisible()
  found.calls = await longest(page, 'scrolling 100,000 calls', () => scroll(page))
  found.filter = await longest(page, 'filtering the calls', async () => {
    await page.goto('/calls?state=failed')
    await page.waitForTimeout(1500)
  })
  await page.goto('/audit')
  await expect(page.getByRole('grid').getByRole('row').nth(5)).toBeVisible()
  found.audit = await longest(page, 'reading on in the audit', () => scroll(page))
  for (const [name, ms] of Object.entries(found)) expect(ms, name).toBeLessThan(most)
  await context.close()
})

test('the first page is there within a second on a slow machine and network', async ({ browser }) => {
  const context = await browser.newContext()
  const page = await context.newPage()
  const cdp = await context.newCDPSession(page)
  await cdp.send('Network.enable')
  await cdp.send('Network.emulateNetworkConditions', { offline: false, latency: 150, downloadThroughput: 1.6e6 / 8, uploadThroughput: 0.75e6 / 8 })
  await cdp.send('Emulation.setCPUThrottlingRate', { rate: 4 })
  let bytes = 0
  cdp.on('Network.loadingFinished', (event) => { bytes += event.encodedDataLength })
  await page.goto(`${url}/login`)
  await expect(page.getByLabel('API key')).toBeVisible()
  const paint = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1)
  process.stdout.write(`SPEED first page: first contentful paint ${paint.toFixed(0)} ms, ${bytes} bytes over the network\n`)
  expect(bytes).toBeLessThan(250_000)
  expect(paint).toBeGreaterThan(0)
  expect(paint).toBeLessThan(2500)
  await context.close()
})
