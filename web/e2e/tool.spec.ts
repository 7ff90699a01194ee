import { ask, expect, looksRight, test } from './fixtures'

const everything = (version: string, most: number, description = 'Takes every kind of argument and gives it back.') => ({
  manifest: {
    schema_version: 1, tool_id: 'demo.everything', version, tool_name: 'Everything', description, category: 'development', side_effects: 'none', idempotent: true, risk: 'low',
    execution: { kind: 'builtin', binding: { name: 'echo' } },
    examples: [{ scenario: 'A picnic', input: { title: 'Picnic', place: { city: 'Oslo' } } }],
    parameters_schema: {
      type: 'object', additionalProperties: false, required: ['title', 'place'],
      properties: {
        title: { type: 'string', minLength: 1, maxLength: 40 },
        place: { type: 'object', required: ['city'], properties: { city: { type: 'string' }, at: { $ref: '#/$defs/Point' } } },
        big: { type: 'integer' }, ratio: { type: ['number', 'null'], minimum: 0, maximum: 1 }, urgent: { type: 'boolean' }, size: { enum: ['small', 'large'] },
        payment: { oneOf: [
          { title: 'Card', type: 'object', required: ['kind', 'number'], properties: { kind: { const: 'card' }, number: { type: 'string' } } },
          { title: 'Voucher', type: 'object', required: ['kind', 'code'], properties: { kind: { const: 'voucher' }, code: { type: 'string' } } },
        ] },
        tags: { type: 'array', items: { type: 'string' }, maxItems: most },
        photo: { type: 'string', contentEncoding: 'base64' },
        tree: { $ref: '#/$defs/Tree' },
      },
      $defs: {
        Point: { type: 'object', required: ['lat'], properties: { lat: { type: 'number' } } },
        Tree: { type: 'object', properties: { name: { type: 'string' }, children: { type: 'array', items: { $ref: '#/$defs/Tree' } } } },
      },
    },
  },
})

// Publishing the same again changes nothing.
async function publish() {
  await ask('admin', 'POST', '/api/v1/tools/register', everything('1.0.0', 3))
  await ask('admin', 'POST', '/api/v1/tools/register', everything('1.1.0', 5, 'Takes each kind of argument and gives it back.'))
}

const picture = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='

test('a tool is tried dry and called, by a form for every kind of argument', async ({ login }) => {
  await publish()
  const page = await login('admin')
  await page.goto('/tools/demo.everything')
  const box = (name: string) => page.getByRole('textbox', { name: new RegExp(`^${name} `) })

  // What is missing is said by the server, and shown at its field.
  await page.getByRole('button', { name: 'Dry run' }).click()
  const dry = page.getByRole('region', { name: 'Dry run' })
  await expect(dry.getByText('it would be refused')).toBeVisible()
  await expect(dry.getByRole('listitem')).toHaveCount(12)
  await expect(box('title')).toHaveAttribute('aria-invalid', 'true')
  await expect(box('city')).toHaveAttribute('aria-invalid', 'true')
  await looksRight(page, 'tool-refused')

  await box('title').fill('Hi')
  await box('city').fill('Bergen')
  await box('big').fill('12345678901234567890')
  await page.getByRole('button', { name: 'ratio: send null' }).click()
  await page.getByLabel(/^size /).selectOption('small')
  await page.getByRole('button', { name: 'Add payment' }).click()
  await page.getByLabel('Kind', { exact: true }).selectOption({ label: 'Voucher' })
  await box('code').fill('X1')
  await page.getByRole('button', { name: 'Add tags', exact: true }).click()
  await page.keyboard.press('Enter') // the focus is where the next thing is done
  await expect(page.getByRole('textbox', { name: /^tags 1 / })).toBeFocused()
  await page.getByLabel(/^photo /).setInputFiles({ name: 'dot.png', mimeType: 'image/png', buffer: Buffer.from(picture, 'base64') })
  await page.getByRole('button', { name: 'Add tree' }).click()
  await page.getByRole('button', { name: 'Add children', exact: true }).click()
  await page.getByRole('button', { name: 'Add children 1' }).click()

  // A list's element without a value cannot be sent.
  await page.getByRole('button', { name: 'Call', exact: true }).click()
  await expect(page.getByText('Enter a value, or remove this line.')).toBeVisible()
  await page.getByRole('textbox', { name: /^tags 1 / }).fill('a')
  await page.getByRole('button', { name: 'Dry run' }).click()
  await expect(dry.getByText('it would be carried out')).toBeVisible()
  await page.getByRole('button', { name: 'Call', exact: true }).click()
  const result = page.getByRole('region', { name: 'Result' })
  await expect(result.getByText('success')).toBeVisible()
  await looksRight(page, 'tool-called')
  await result.getByRole('button', { name: 'JSON' }).click()
  for (const part of ['"big": 12345678901234567890', '"ratio": null', '"code": "X1"', '"kind": "voucher"', `"photo": "${picture}"`, '"size": "small"']) await expect(result).toContainText(part)
  await expect(result).not.toContainText('urgent')

  // The same as JSON, and back.
  await page.getByRole('button', { name: 'JSON' }).first().click()
  await expect(page.getByLabel('Arguments as JSON')).toHaveValue(/"big": 12345678901234567890/)
  await page.getByLabel('Arguments as JSON').fill('{"title": "from JSON", "place": {"city": ')
  await expect(page.getByText(/^This is not JSON/)).toBeVisible()
  await page.getByLabel('Arguments as JSON').fill('{"title": "from JSON", "place": {"city": "Oslo"}}')
  await page.getByRole('button', { name: 'Form' }).click()
  await expect(box('title')).toHaveValue('from JSON')
})

test('a tool is described, and its versions are compared', async ({ login }) => {
  await publish()
  const page = await login('admin')
  await page.goto('/tools/demo.everything')
  await page.getByRole('link', { name: 'Versions' }).click()
  await expect(page.getByText('/parameters_schema/properties/tags/maxItems')).toBeVisible()
  await expect(page.getByRole('group', { name: '1.0.0 and 1.1.0' })).toContainText('"maxItems": 5')
  await looksRight(page, 'tool-versions')
  await page.getByRole('link', { name: 'Usage' }).click()
  await expect(page.getByText('Circuit breaker')).toBeVisible()
  await looksRight(page, 'tool-usage')
  await page.getByRole('link', { name: 'About' }).click()
  await expect(page.getByRole('row', { name: /^title/ })).toBeVisible()
  await looksRight(page, 'tool-about')
  await page.getByRole('link', { name: 'Examples' }).click()
  await page.getByRole('button', { name: 'Try it' }).click()
  await expect(page.getByRole('textbox', { name: /^title / })).toHaveValue('Picnic')
})

test('results are a table, a picture, text or a file; a call that writes is made once by a double press', async ({ login }) => {
  const page = await login('admin')
  await page.goto('/tools/bookshop.searchBooks')
  await page.getByRole('button', { name: 'Call', exact: true }).click()
  const result = page.getByRole('region', { name: 'Result', exact: true })
  await expect(result.getByRole('row', { name: /Moby-Dick/ })).toBeVisible()
  await looksRight(page, 'tool-table')
  const [file] = await Promise.all([page.waitForEvent('download'), result.getByRole('button', { name: 'Download' }).click()])
  expect(file.suggestedFilename()).toMatch(/^bookshop\.searchBooks-.+\.json$/)

  await page.goto('/tools/std.echo')
  await page.getByRole('button', { name: 'JSON' }).click()
  await page.getByLabel('Arguments as JSON').fill(JSON.stringify({ content: [{ type: 'image', mimeType: 'text/html', data: picture }, { type: 'text', text: 'A dot.' }] }))
  await page.getByRole('button', { name: 'Call', exact: true }).click()
  const img = result.getByRole('img', { name: 'Picture 1 of the result' })
  await expect(img).toHaveAttribute('src', /^blob:/)
  expect(await img.evaluate((one) => (one as HTMLImageElement).naturalWidth)).toBe(1)
  await result.getByRole('button', { name: 'Text' }).click()
  await expect(result.getByText('A dot.')).toBeVisible()

  await page.goto('/tools/bookshop.createOrder')
  await expect(page.getByText('Using server key').first()).toBeVisible()
  await page.getByLabel('Begin with an example').selectOption({ index: 1 })
  const before = await ask<{ total_count: number }>('admin', 'GET', '/api/v1/invocations?tool_id=bookshop.createOrder&page_size=1')
  await page.getByRole('button', { name: /^Call/ }).dblclick()
  await expect(result.getByText('success')).toBeVisible()
  const after = await ask<{ total_count: number }>('admin', 'GET', '/api/v1/invocations?tool_id=bookshop.createOrder&page_size=1')
  expect(after.total_count - before.total_count).toBe(1)
})

test('a call that waits for a person is followed until it ends', async ({ login }) => {
  const page = await login('agent')
  await page.goto('/tools/std.hash')
  await page.getByRole('textbox', { name: /^text / }).fill('followed')
  await page.getByRole('button', { name: 'Dry run' }).click()
  await expect(page.getByText('it would wait for a person')).toBeVisible()
  await page.getByText('Options').click()
  await page.getByLabel('In the background').check()
  await page.getByRole('button', { name: 'Call', exact: true }).click()
  await expect(page.getByText('It waits for a person who decides.')).toBeVisible()
  const href = await page.getByRole('link', { name: 'The whole way of this call' }).getAttribute('href')
  await ask('approver', 'POST', `/api/v1/approvals/${href!.split('/').pop()}/approve`, {})
  await expect(page.getByRole('region', { name: 'Result' }).getByText('success')).toBeVisible()
})

test('nothing that a tool or a result says runs or is shown as a page @more', async ({ login }) => {
  const evil = '<img src=x onerror="window.__hit=1"><svg onload="window.__hit=1"><script>window.__hit=1</script>"\'`;{{7*7}}javascript:window.__hit=1\u202e\u200b'
  await ask('admin', 'POST', '/api/v1/tools/register', { manifest: {
    schema_version: 1, tool_id: 'demo.evil', version: '1.0.0', tool_name: evil.slice(0, 100), description: evil, short_description: evil.slice(0, 90), explanation: evil, input_guidance: evil, category: 'development', side_effects: 'none', idempotent: true, risk: 'low',
    execution: { kind: 'builtin', binding: { name: 'echo' } }, use_cases: [evil], examples: [{ scenario: evil, input: { text: evil } }], common_errors: [{ error: evil, resolution: evil }],
    parameters_schema: { type: 'object', title: evil, description: evil, properties: { text: { type: 'string', title: evil, description: evil, default: evil, examples: [evil] }, pick: { enum: [evil] }, ['na\u202eme<b>']: { type: 'string', format: evil.slice(0, 40) }, any: { oneOf: [{ title: evil, type: 'string' }, { title: `${evil}2`, type: 'object' }] } }, additionalProperties: true },
  } })
  const page = await login('admin')
  for (const view of ['', '/about', '/examples', '/versions', '/usage', '/related']) {
    await page.goto(`/tools/demo.evil${view}`)
    await expect(page.getByRole('heading', { level: 1 })).toContainText('<img src=x')
  }
  await page.goto('/tools/demo.evil')
  await expect(page.locator('.tool-form-name').filter({ hasText: 'naU+202Eme<b>' })).toBeVisible()
  expect(await page.getByRole('main').innerText()).not.toMatch(/[\u202e\u200b]/)
  await page.getByLabel('Begin with an example').selectOption({ index: 1 })
  await page.getByRole('button', { name: 'JSON' }).click()
  await page.getByLabel('Arguments as JSON').fill(JSON.stringify({ text: evil, [evil]: [{ [evil]: evil }], content: [{ type: 'text', text: evil }, { type: 'image', mimeType: 'image/svg+xml', data: btoa('<svg xmlns="http://www.w3.org/2000/svg" onload="window.__hit=1"/>') }] }))
  await page.getByRole('button', { name: 'Call', exact: true }).click()
  const result = page.getByRole('region', { name: 'Result', exact: true })
  await expect(result.getByText('success')).toBeVisible()
  for (const view of await result.getByRole('group', { name: 'Show the result as' }).getByRole('button').allTextContents()) {
    if (view !== 'Download') await result.getByRole('button', { name: view }).click()
  }
  await expect(result.locator('img')).toHaveCount(0)
  await expect(page.locator('.mark').first()).toBeVisible() // what does not show is marked
  await page.goto(`/tools?q=${encodeURIComponent('evil window hit')}`)
  await expect(page.getByRole('link', { name: 'demo.evil' })).toBeVisible()
  expect(await page.evaluate(() => (window as unknown as { __hit?: number }).__hit)).toBeUndefined()
  await ask('admin', 'DELETE', '/api/v1/tools/demo.evil')
})

test('the way from the catalogue to a result by keys alone @more', async ({ login }) => {
  const page = await login('admin')
  await page.goto('/tools')
  await expect(page.getByRole('row', { name: /bookshop\.cancelOrder/ })).toBeVisible() // the last ones are drawn when they are near
  await page.keyboard.press('j')
  await page.keyboard.press('End')
  await expect(page.getByRole('row', { name: /std\.wait/ })).toBeFocused()
  await page.keyboard.press('k')
  await page.keyboard.press('Enter')
  await expect(page.getByRole('heading', { level: 1 })).toBeFocused()
  await expect(page).toHaveURL(/\/tools\/std\.uuid$/)
  for (let i = 0; i < 60 && !(await page.getByRole('button', { name: 'Call', exact: true }).evaluate((b) => b === document.activeElement)); i++) await page.keyboard.press('Tab')
  await page.keyboard.press('Enter')
  await expect(page.getByRole('region', { name: 'Result', exact: true }).getByText('success')).toBeVisible()
})
