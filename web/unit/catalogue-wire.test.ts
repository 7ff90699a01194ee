import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { known, ofContext, ofList, ofSearch } from '../src/areas/catalogue/wire'

interface Document { components: { schemas: Record<string, { properties?: Record<string, unknown> }> }; paths: Record<string, Record<string, { parameters?: { in: string; name: string }[] }>> }
const document = JSON.parse(readFileSync('openapi.json', 'utf8')) as Document
const asked = ['category', 'namespace', 'tag', 'include_deprecated', 'capability_query', 'source', 'state', 'risk', 'side_effects', 'auth_state', 'auth_scope', 'held', 'callable', 'sort', 'facets', 'learn', 'q', 'limit', 'explain', 'includeExamples']

test('the pages send the parameters that openapi.json has, and no others', () => {
  for (const [path, method, list] of [['/api/v1/tools', 'get', ofList], ['/api/v1/tools/retrieval/search', 'get', ofSearch]] as const) {
    const there = (document.paths[path]![method]!.parameters ?? []).filter((p) => p.in === 'query').map((p) => p.name)
    assert.deepEqual([...list].sort(), asked.filter((name) => there.includes(name)).sort(), `${path}: mend src/areas/catalogue/wire.ts`)
  }
  assert.deepEqual([...ofContext], 'learn' in document.components.schemas.ToolContextRequest!.properties! ? ['learn'] : [], 'the context: mend src/areas/catalogue/wire.ts')
})

test('what a route does not know, and what is not asked for, is left out', () => {
  assert.deepEqual(known(new Set(['a', 'b']), { a: 1, b: undefined, c: 2 }), { a: 1 })
})
