import { ask, expect, keys, settled, test, url } from './fixtures'

// Texts that try to become markup, script, addresses or other words than they are.
const corpus = [
  '<script>window.__hit=1</script>', '"><script>window.__hit=1</script>', '<img src=x onerror="window.__hit=1">', '<svg onload=window.__hit=1>', '<svg><animate onbegin=window.__hit=1 attributeName=x dur=1s>',
  '<iframe srcdoc="<script>parent.__hit=1</script>">', '<body onload=window.__hit=1>', '<details open ontoggle=window.__hit=1>', '<input autofocus onfocus=window.__hit=1>', '<math><mtext></form><form><mglyph><style></math><img src onerror=window.__hit=1>',
  'javascript:window.__hit=1', 'JaVaScRiPt:window.__hit=1', 'data:text/html,<script>window.__hit=1</script>', 'vbscript:msgbox(1)', '//evil.example/x', 'https://evil.example/<script>',
  '{{constructor.constructor("window.__hit=1")()}}', '${window.__hit=1}', '#{7*7}', '<%= 7*7 %>', '[x](javascript:window.__hit=1)', '![x](x"onerror="window.__hit=1)',
  "'-window.__hit=1-'", '\\"-window.__hit=1-\\"', '`${window.__hit=1}`', '</title><script>window.__hit=1</script>', '</style><script>window.__hit=1</script>', '</textarea><script>window.__hit=1</script>', '<!--<img src="--><img src=x onerror=window.__hit=1//">', ']]><script>window.__hit=1</script>',
  '<base href="https://evil.example/">', '<meta http-equiv=refresh content="0;url=https://evil.example/">', '<link rel=stylesheet href=https://evil.example/x.css>', '<form action=https://evil.example><input name=x>', '<a href="javascript:window.__hit=1">x</a>', '<object data="data:text/html,x">', '<embed src=x>', '<template><script>window.__hit=1</script></template>',
  '__proto__', 'constructor', 'toString', 'safe\u202etxt.exe', 'zero\u200bwidth', '\u{e0041}\u{e0042} tags', 'a\u0301'.repeat(20), '\ufeffbom', '%3Cscript%3Ewindow.__hit=1%3C/script%3E', '&lt;script&gt;window.__hit=1&lt;/script&gt;', '&#60;img src=x onerror=window.__hit=1&#62;', '\u2028\u2029line', 'x'.repeat(3000), '🏴‍☠️ 👩‍👩‍👧', '-0', '1e999', 'null', '\t\r\n mixed', "Robert'); DROP TABLE tools;--", '../../../etc/passwd', 'file:///etc/passwd', 'A\u030a\u0327',
]

test('no text of tools, callers, results and reasons becomes anything but text', async ({ login, expects }) => {
  test.setTimeout(180_000)
  expects.push(/40[0-9]|422|429/)
  const all = corpus.join(' | ')
  const manifest = (id: string, text: string) => ({
    schema_version: 1, tool_id: id, version: '1.0.0', description: text.slice(0, 3900), execution: { kind: 'builtin', binding: { name: 'echo' } },
    parameters_schema: { type: 'object', title: text.slice(0, 200), description: text.slice(0, 2000), properties: { text: { type: 'string', title: text.slice(0, 200), description: text.slice(0, 2000), enum: corpus.slice(0, 10), default: corpus[2] }, free: { type: 'string', examples: corpus.slice(10, 20) } } },
    examples: [{ scenario: text.slice(0, 200), input: { free: corpus[2] } }],
  })
  await ask('admin', 'POST', '/api/v1/tools/register', { manifest: manifest('corpus.all', all) })
  for (const [i, text] of corpus.entries()) {
    // Some texts are refused in some places; what is taken must be shown as text.
    await ask('agent', 'POST', '/api/v1/tools/invoke', { tool_id: 'corpus.all', parameters: { free: text, [text]: text }, agent_context: { session_id: text.slice(0, 200) } }).catch(() => {})
    if (i < 20) await ask('admin', 'POST', '/api/v1/keys', { subject: text.slice(0, 200), name: text.slice(0, 100), roles: ['agent'], scope: ['corpus.*'] }).catch(() => {})
  }
  const waiting = await ask<{ invocation_id: string }>('agent', 'POST', '/api/v1/tools/invoke', { tool_id: 'std.hash', parameters: { text: all.slice(0, 4000) }, agent_context: { session_id: corpus[2] }, execution_options: { async_mode: true } })
  const denied = await ask<{ invocation_id: string }>('agent', 'POST', '/api/v1/tools/invoke', { tool_id: 'std.hash', parameters: { text: 'x' }, execution_options: { async_mode: true } })
  await ask('approver', 'POST', `/api/v1/approvals/${denied.invocation_id}/deny`, { reason: all.slice(0, 4000) })
  const calls = await ask<{ invocations: { invocation_id: string }[] }>('admin', 'GET', '/api/v1/invocations?tool_id=corpus.all&page_size=5')

  const page = await login('admin')
  const paths = ['/tools', '/tools?q=corpus', `/tools?q=${encodeURIComponent(corpus[0]!)}`, '/tools/corpus.all', '/tools/corpus.all/call', '/tools/corpus.all/about', '/tools/corpus.all/examples', '/tools/corpus.all/versions', '/tools/corpus.all/usage', '/tools/corpus.all/related',
    '/calls', `/calls?agent_id=${encodeURIComponent(corpus[2]!)}`, `/calls/${denied.invocation_id}`, ...calls.invocations.map((c) => `/calls/${c.invocation_id}`), '/servers', '/queue', '/overview', '/approvals', `/approvals/${waiting.invocation_id}`, '/approvals?state=all', `/approvals/${denied.invocation_id}`,
    '/audit', `/audit?agent_id=${encodeURIComponent(corpus[2]!)}`, '/access', '/access/rights?tool=corpus.all', `/access/rights?subject=${encodeURIComponent(corpus[2]!)}`, '/access/secrets']
  for (const path of paths) {
    await page.goto(path)
    await expect(page.getByRole('heading', { level: 1 })).toBeVisible()
    await settled(page)
    const made = await page.evaluate(() => ({
      hit: (window as unknown as { __hit?: number }).__hit,
      elements: document.querySelectorAll('script:not([type=module]), iframe, object, embed, img[src="x"], base:not(:first-of-type), form[action*=evil], meta[http-equiv], svg[onload], [onerror], [onload], [onfocus], [ontoggle]').length,
      links: [...document.querySelectorAll('a[href]')].filter((a) => !/^(https?|mailto):/.test((a as HTMLAnchorElement).protocol)).length,
    }))
    expect(made, path).toEqual({ hit: undefined, elements: 0, links: 0 })
    expect(new URL(page.url()).origin, path).toBe(new URL(url).origin)
  }
})

test('after the login only own paths are gone to', async ({ browser }) => {
  for (const next of ['//evil.example', '/\\evil.example', '\\\\evil.example', 'https://evil.example', 'javascript:alert(1)', '/login', '']) {
    const context = await browser.newContext()
    const page = await context.newPage()
    await page.goto(`/login?next=${encodeURIComponent(next)}`)
    await page.getByLabel('API key').fill(keys.admin)
    await page.getByRole('button', { name: 'Log in' }).click()
    await expect(page.getByRole('navigation', { name: 'Pages' })).toBeVisible()
    expect(new URL(page.url()).origin, next).toBe(new URL(url).origin)
    expect(new URL(page.url()).pathname, next).not.toBe('/login')
    await context.close()
  }
})

test('another page cannot read, write or frame', async ({ login }) => {
  const page = await login('admin')
  await page.goto('/')
  // The cookie alone does nothing: not for a form, not for a script of another port of the same host.
  for (const [method, headers] of [['GET', {}], ['POST', { 'Content-Type': 'text/plain' }], ['POST', { 'Content-Type': 'application/x-www-form-urlencoded' }], ['POST', { 'Content-Type': 'application/json', 'X-HTTP-Method-Override': 'DELETE' }]] as const) {
    const response = await page.context().request.fetch(`${url}/api/v1/keys`, { method, headers: { ...headers, Origin: url }, data: method === 'POST' ? '{"subject":"evil","roles":["admin"]}' : undefined, failOnStatusCode: false })
    expect(response.status(), `${method} ${JSON.stringify(headers)}`).toBeGreaterThanOrEqual(400)
  }
  const keysNow = await ask<{ keys: { subject: string }[] }>('admin', 'GET', '/api/v1/keys?page_size=200')
  expect(keysNow.keys.map((k) => k.subject)).not.toContain('evil')
  const answer = await fetch(`${url}/`)
  expect(answer.headers.get('content-security-policy')).toContain("frame-ancestors 'none'")
  expect(answer.headers.get('content-security-policy')).toContain("default-src 'none'")
  expect(answer.headers.get('x-frame-options')).toBe('DENY')
  expect(await answer.text()).not.toMatch(/<script(?![^>]*\bsrc=)/)
})
