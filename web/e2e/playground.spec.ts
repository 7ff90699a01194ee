import { expect, looksRight, test } from './fixtures'

test('a task shows what is found, and what each phase would tell a model', async ({ login }) => {
  const page = await login('agent')
  await page.goto('/playground')
  await page.getByLabel('Task').fill('order a book')
  await page.getByRole('button', { name: 'Show' }).click()
  await expect(page.getByRole('region', { name: 'What search finds' }).getByRole('link', { name: 'bookshop.createOrder' })).toBeVisible()
  const told = page.getByRole('region', { name: 'What a model is told' })
  for (const phase of ['Planning', 'Choosing', 'Preparing', 'Recovering']) {
    await expect(told.getByRole('group', { name: `Context of ${phase}` })).toContainText('bookshop.createOrder')
    await expect(told.getByRole('row', { name: new RegExp(`^${phase} [0-9,]+`) })).toBeVisible()
  }
  await expect(told.getByRole('row', { name: /^All tools \(about\) [0-9,]+/ })).toBeVisible()
  await looksRight(page, 'playground')
  await page.getByLabel('Form').selectOption('json')
  await expect(told.getByRole('group', { name: 'Context of Planning' })).toContainText('"lightweightIndex"')
  await page.getByLabel('Tokens at most').fill('12')
  await expect(page.getByText(/^From 500 to 100,000/)).toBeVisible()
})
