import { ask, expect, looksRight, settled, test } from './fixtures'

const paths = ['/', '/tools', '/tools/std.hash', '/tools/std.hash/call', '/playground', '/connect', '/import', '/import/mcp', '/overview', '/calls', '/servers', '/servers/notes', '/queue', '/limits', '/system', '/approvals', '/approvals/standing', '/audit', '/audit/chain', '/access', '/access/roles', '/access/rights?tool=std.hash', '/access/secrets', '/access/policy', '/agents']

for (const phone of [false, true]) {
  test(`every page is accessible in both themes, ${phone ? 'on a telephone' : 'on a desk'} @more`, async ({ login, expects }) => {
    test.setTimeout(300_000)
    expects.push(/404/)
    await ask('agent', 'POST', '/api/v1/tools/invoke', { tool_id: 'std.echo', parameters: { text: 'hello' } }).catch(() => {})
    const page = await login('admin', { phone })
    for (const path of paths) {
      await page.goto(path)
      await expect(page.getByRole('heading', { level: 1 })).toBeVisible()
      await settled(page)
      await looksRight(page, path.replace(/[^a-z0-9]+/gi, '_').replace(/^_|_$/g, '') || 'home')
      expect(await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth), `${path} is wider than the window`).toBeLessThanOrEqual(0)
    }
  })
}

test('what a role may not do is not shown, and the server refuses it all the same', async ({ login, expects }) => {
  expects.push(/403/)
  const page = await login('agent')
  await page.goto('/tools')
  const nav = page.getByRole('navigation', { name: 'Pages' })
  await expect(nav.getByRole('link', { name: 'Catalogue' })).toBeVisible()
  for (const hidden of ['Import', 'Audit', 'Access']) await expect(nav.getByRole('link', { name: hidden })).toHaveCount(0)
  await page.goto('/access/roles')
  await expect(page.getByRole('heading', { name: 'Your role does not have this page' })).toBeVisible()
})
