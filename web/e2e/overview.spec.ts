import { ask, expect, looksRight, test } from './fixtures'

const stats = () => ask<{ status: string }>('admin', 'POST', '/api/v1/tools/invoke', { tool_id: 'std.text_stats', parameters: { text: 'a' } })

test('the overview counts calls, and each chart has its numbers', async ({ login }) => {
  await stats()
  const page = await login('admin')
  await page.goto('/overview?window=5m')
  await expect(page.locator('dl').getByText('Succeeded')).toBeVisible()
  await expect(page.getByRole('img', { name: /Calls a minute/ }).locator('canvas')).toBeVisible()
  const chart = page.getByRole('figure', { name: 'Calls a minute' })
  await chart.getByText('As a table').click()
  await expect(chart.getByRole('table')).toContainText('Refused')
  await looksRight(page, 'overview')
  await page.getByLabel('Window').selectOption('The last 6 hours')
  await expect(page).toHaveURL(/window=6h/)
  await page.getByRole('link', { name: 'Finding tools' }).click()
  await expect(page.getByRole('heading', { name: 'What search learned' })).toBeVisible()
  await looksRight(page, 'finding')
})

test('a breaker is forced open and reset', async ({ login }) => {
  await stats()
  const page = await login('admin')
  await page.goto('/limits')
  const row = page.getByRole('row', { name: /tool:std\.text_stats/ })
  try {
    await row.getByRole('button', { name: /Open/ }).click()
    await page.getByLabel('Reason (optional)').fill('being repaired')
    await page.getByRole('alertdialog').getByRole('button', { name: 'Refuse all calls' }).click()
    await expect(row).toContainText('Forced open')
    await expect(row).toContainText('being repaired')
    await expect(stats()).rejects.toThrow(/E3903/)
    await looksRight(page, 'limits')
    await row.getByRole('button', { name: /Reset/ }).click()
    await page.getByRole('alertdialog').getByRole('button', { name: 'Reset' }).click()
    await expect(row).toContainText('Closed')
    expect((await stats()).status).toBe('success')
  } finally {
    await ask('admin', 'POST', '/api/v1/breakers/tool:std.text_stats', { action: 'reset' })
  }
})

test('nodes and caches are seen by operators of the first tenant', async ({ login }) => {
  const page = await login('admin')
  await page.goto('/system')
  await expect(page.getByText('answers', { exact: true })).toBeVisible()
  await expect(page.getByRole('region', { name: 'Caches' }).getByRole('row')).not.toHaveCount(1)
  await looksRight(page, 'system')
  const agent = await login('agent')
  await agent.goto('/system')
  await expect(agent.getByText('Your role does not have this page')).toBeVisible()
})
