import { ask, expect, looksRight, test, url, keys } from './fixtures'

interface Call { invocation_id: string; status: string; result?: unknown; error?: { code: string; message: string } }

async function waits(text: string): Promise<string> {
  const call = await ask<Call>('agent', 'POST', '/api/v1/tools/invoke', { tool_id: 'std.hash', parameters: { text }, execution_options: { async_mode: true } })
  expect(call.status).toBe('pending_approval')
  return call.invocation_id
}

async function ended(id: string): Promise<Call> {
  let call: Call | undefined
  await expect.poll(async () => { call = await ask<Call>('agent', 'GET', `/api/v1/invocations/${id}`); return call.status }).not.toMatch(/pending|running/)
  return call!
}

test('an approver edits a call on a telephone and approves it', async ({ login }) => {
  const page = await login('approver', { phone: true })
  await page.goto('/approvals')
  await expect(page.getByRole('heading', { name: 'Nothing waits' })).toBeVisible()
  const id = await waits('secret plan')
  // It comes by itself.
  await page.getByRole('row', { name: /std\.hash/ }).click()
  await expect(page.getByText('secret plan')).toBeVisible()
  await looksRight(page, 'approval')
  await page.getByRole('button', { name: 'Edit' }).click()
  const text = page.getByLabel('Arguments that would run instead')
  await text.fill('{ "text": ')
  await expect(page.getByRole('button', { name: 'Approve as edited' })).toBeDisabled()
  await text.fill('{ "text": "public plan" }')
  await expect(page.getByRole('group', { name: 'As they are and As you edit them' })).toContainText('public plan')
  await page.getByRole('button', { name: 'Approve as edited' }).click()
  await looksRight(page, 'approval-question')
  await page.getByLabel('Reason').fill('without the secret')
  await page.getByRole('button', { name: 'Approve', exact: true }).click()
  await expect(page.getByText('approved').first()).toBeVisible()
  const call = await ended(id)
  expect(call.status).toBe('success')
  const expected = await ask<Call>('admin', 'POST', '/api/v1/tools/invoke', { tool_id: 'std.hash', parameters: { text: 'public plan' } })
  expect(call.result).toEqual(expected.result)
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(390)
})

test('a denied call ends with the reason, by keys alone', async ({ login }) => {
  const id = await waits('for the bin')
  const page = await login('approver')
  await page.goto(`/approvals/${id}`)
  await expect(page.getByText('for the bin')).toBeVisible()
  await page.keyboard.press('n')
  await expect(page.getByRole('alertdialog')).toBeVisible()
  await page.keyboard.type('not today')
  await page.keyboard.press('Tab')
  await page.keyboard.press('Tab')
  await page.keyboard.press('Enter')
  await expect(page.getByText('denied').first()).toBeVisible()
  const call = await ended(id)
  expect(JSON.stringify(call.error)).toContain('not today')
})

test('what another approved meanwhile cannot be approved', async ({ login, expects }) => {
  expects.push(/409|404/)
  const id = await waits('first')
  const page = await login('approver')
  await page.goto(`/approvals/${id}`)
  await page.getByRole('button', { name: 'Edit' }).click()
  // Another approver decides first.
  const response = await fetch(`${url}/api/v1/approvals/${id}/approve`, { method: 'POST', headers: { Authorization: `Bearer ${keys.approver}`, 'Content-Type': 'application/json' }, body: '{}' })
  expect(response.status).toBe(200)
  await expect(page.getByText('approved').first()).toBeVisible()
  await expect(page.getByRole('button', { name: /^Approve/ })).toHaveCount(0)
})

test('a standing approval covers the next call', async ({ login }) => {
  const page = await login('approver')
  await page.goto(`/approvals/${await waits('always')}`)
  await page.getByRole('button', { name: 'Approve' }).click()
  await page.getByLabel('Later calls of this agent').selectOption({ index: 1 })
  await page.getByRole('alertdialog').getByRole('button', { name: 'Approve' }).click()
  await expect(page.getByText('approved').first()).toBeVisible()
  const again = await ask<Call>('agent', 'POST', '/api/v1/tools/invoke', { tool_id: 'std.hash', parameters: { text: 'always' } })
  expect(again.status).toBe('success')
  await page.goto('/approvals/standing')
  await expect(page.getByRole('heading', { name: /std\.hash/ })).toBeVisible()
  await looksRight(page, 'standing')
})
