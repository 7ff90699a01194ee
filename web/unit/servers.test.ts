import assert from 'node:assert/strict'
import { test } from 'node:test'
import { digests, toReview, type Tool } from '../src/areas/servers/model.ts'

const tool = (tool_id: string, more: Partial<Tool>): Tool => ({ tool_id, tool: tool_id, version: '1.0.0', change: 'unchanged', state: 'published', digest: `sha256:${tool_id}`, ...more })

test('what differs is to be reviewed, grave findings first', () => {
  const tools = [
    tool('a', {}), tool('f', { change: 'gone', state: 'blocked' }), tool('b', { change: 'patch', state: 'held' }), tool('c', { change: 'major', state: 'held' }), tool('d', { state: 'pending' }),
    tool('e', { change: 'new', state: 'pending', findings: [{ rule: 'x', pointer: '', text: '', severity: 'high', message: '' }] }),
  ]
  assert.deepEqual(toReview(tools).map((t) => t.tool_id), ['e', 'c', 'b', 'd'])
})

test('accepting names each digest that was shown, also that there is none', () => {
  assert.deepEqual(digests([tool('a', {}), tool('b', { change: 'gone', digest: undefined })]), { a: 'sha256:a', b: '' })
})
