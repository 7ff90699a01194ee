import { ask, expect, looksRight, test } from './fixtures'

test('a client is connected with a key of its own, which stays in the page alone', async ({ login }) => {
  const page = await login('admin')
  await page.goto('/connect')
  await expect(page.getByLabel('Client')).toBeVisible()
  await looksRight(page, 'connect')
  await expect(page.locator('pre').first()).toContainText('TOOLKEEP_KEY')
  await page.getByLabel('Subject of its key').fill('desk')
  await page.getByRole('button', { name: 'Make a key' }).click()
  await expect(page.locator('pre').first()).toContainText('tk_')
  const { keys } = await ask<{ keys: { subject: string; roles: string[] }[] }>('admin', 'GET', '/api/v1/keys?page_size=200')
  expect(keys).toContainEqual(expect.objectContaining({ subject: 'desk', roles: ['agent'] }))
  const kept = await page.evaluate(() => location.href + JSON.stringify(localStorage) + JSON.stringify(sessionStorage))
  expect(kept).not.toMatch(/tk_[a-z0-9]{8}/)
  await page.reload()
  await expect(page.locator('pre').first()).toContainText('TOOLKEEP_KEY')
  await expect(page.getByText(/tk_[a-z0-9]{8}/)).toHaveCount(0)
})
