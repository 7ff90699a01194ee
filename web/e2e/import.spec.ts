import { ask, expect, looksRight, test } from './fixtures'

const document = `openapi: 3.1.0
info: { title: Pet Store, version: 1.0.0, description: All about pets }
servers: [{ url: https://pets.example/v1 }]
paths:
  /pets:
    get:
      operationId: listPets
      summary: List the pets of the shop
      parameters: [{ name: kind, in: query, schema: { type: string, enum: [cat, dog] } }]
      responses: { "200": { description: the pets } }
  /pets/{id}:
    get:
      operationId: getPet
      summary: Look one pet up
      parameters: [{ name: id, in: path, required: true, schema: { type: string } }]
      responses: { "200": { description: the pet } }
  /broken:
    get:
      operationId: broken
      requestBody: { content: { application/json: { schema: { $ref: "#/components/schemas/Nowhere" } } } }
      responses: { "200": { description: never } }
`

test('a document is planned, published, and found in the catalogue', async ({ login }) => {
  const page = await login('admin')
  await page.goto('/import')
  await page.getByLabel(/OpenAPI document/).setInputFiles({ name: 'pets.yaml', mimeType: 'application/yaml', buffer: Buffer.from(document) })
  await page.getByRole('button', { name: 'Show the plan' }).click()
  const plan = page.getByRole('region', { name: 'Plan' })
  await expect(plan).toContainText('3 operations: 2 tools')
  await plan.getByText('1 operation refused').click()
  await expect(plan).toContainText('broken')
  await looksRight(page, 'import')
  // Nothing was published by the plan.
  expect(await ask<{ total_count: number }>('admin', 'GET', '/api/v1/tools?namespace=pet-store')).toMatchObject({ total_count: 0 })
  await plan.getByRole('button', { name: 'Publish 2 tools' }).click()
  await expect(plan).toContainText('2 versions published')
  await page.getByRole('link', { name: 'See them' }).click()
  await expect(page.getByRole('row', { name: /listPets|list_pets/ })).toBeVisible()
})

test('secrets of a client file are sealed before its server is imported', async ({ login }) => {
  const page = await login('admin')
  await page.goto('/import/mcp')
  await page.getByLabel('Or its text').fill(JSON.stringify({ mcpServers: { tracker: { url: 'https://tracker.example/mcp', headers: { 'X-Api-Key': 'hunter2-hunter2' } } } }))
  const server = page.getByRole('region', { name: 'tracker', exact: true })
  await expect(server.getByRole('button', { name: 'Show the plan' })).toBeDisabled()
  await expect(server).not.toContainText('hunter2')
  await server.getByRole('button', { name: 'Seal 1 secret' }).click()
  await expect(server.getByRole('button', { name: 'Show the plan' })).toBeEnabled()
  const { secrets } = await ask<{ secrets: { name: string; state: string }[] }>('admin', 'GET', '/api/v1/secrets')
  expect(secrets).toContainEqual(expect.objectContaining({ name: 'tracker.x-api-key', state: 'ready' }))
  await looksRight(page, 'import-mcp')
})
