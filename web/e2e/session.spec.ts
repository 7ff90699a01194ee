import { ask, expect, keys, looksRight, test, url } from './fixtures'

test('a key logs in, the page greets, and logging out ends the session', async ({ page, expects }) => {
  expects.push(/401/)
  await page.goto('/audit?type=failed')
  await expect(page.getByRole('heading', { name: 'Toolkeep' })).toBeVisible()
  await looksRight(page, 'login')
  await page.getByLabel('API key').fill('tk_wrong')
  await page.getByRole('button', { name: 'Log in' }).click()
  await expect(page.getByRole('alert')).toContainText(/E\d{4}/)
  await page.getByLabel('API key').fill(keys.admin)
  await page.getByRole('button', { name: 'Log in' }).click()
  // It goes on where it began.
  await expect(page.getByRole('heading', { level: 1, name: 'Audit' })).toBeVisible()
  expect(page.url()).toContain('/audit?type=failed')
  await page.getByRole('link', { name: 'Toolkeep' }).click()
  await expect(page.getByRole('heading', { level: 1, name: /Welcome/ })).toBeVisible()
  await looksRight(page, 'welcome')
  // Nothing of the key stays in the page.
  expect(await page.evaluate(() => JSON.stringify(localStorage) + JSON.stringify(sessionStorage) + document.cookie)).not.toContain(keys.admin)
  await page.getByRole('button', { name: 'Log out' }).click()
  await expect(page.getByLabel('API key')).toBeVisible()
  await page.goto('/')
  await expect(page.getByLabel('API key')).toBeVisible()
})

test('a login link works once, and its token leaves the address', async ({ page, browser, expects }) => {
  expects.push(/4\d\d/)
  const { url: link } = await ask<{ url: string }>('admin', 'POST', '/api/v1/session/links')
  const fragment = new URL(link).hash
  await page.goto(`/login${fragment}`)
  await expect(page.getByRole('heading', { level: 1, name: /Welcome/ })).toBeVisible()
  expect(page.url()).not.toContain(fragment)
  const other = await (await browser.newContext()).newPage()
  await other.goto(`${url}/login${fragment}`)
  await expect(other.getByRole('alert')).toBeVisible()
  await expect(other.getByLabel('API key')).toBeVisible()
  await other.context().close()
})

test('revoking a key logs its session out', async ({ login, page, expects }) => {
  expects.push(/401/)
  const made = await ask<{ id: string; secret: string }>('admin', 'POST', '/api/v1/keys', { subject: 'dora', roles: ['auditor'] })
  await page.goto('/')
  await page.getByLabel('API key').fill(made.secret)
  await page.getByRole('button', { name: 'Log in' }).click()
  await expect(page.getByRole('navigation', { name: 'Pages' })).toBeVisible()
  // An administrator revokes it in another browser.
  const admin = await login('admin')
  await admin.goto(`/access/keys/${made.id}`)
  await admin.getByRole('button', { name: 'Revoke' }).click()
  await admin.getByRole('alertdialog').getByRole('button', { name: 'Revoke' }).click()
  await expect(admin.getByText('The key was revoked').first()).toBeAttached()
  const at = Date.now()
  await page.getByRole('link', { name: 'Audit' }).click()
  await expect(page.getByLabel('API key')).toBeVisible()
  expect(Date.now() - at).toBeLessThan(5000)
})
