import assert from 'node:assert/strict'
import { test } from 'node:test'
import { anchorOf, mostKept, newest, nothing, release, take, type Call, type Event } from '../src/areas/calls/model.ts'

const call = (id: number, state = 'running'): Call => ({
  invocation_id: `c${id}`, status: 'running', state, tool_id: 'std.hash', agent_id: 'a', duration_ms: 0, tool_ms: 0, cache_hit: false, attempts: 1, async_mode: false,
})
const events = (...calls: Call[]): Event[] => calls.map((c) => ({ type: 'call', call: c }))
const none = () => false
const ids = (calls: Call[]) => calls.map((c) => c.invocation_id).join(' ')

test('new calls come to the top, newest first, and known ones keep their place', () => {
  let live = take(nothing, events(call(1), call(2)), false, none)
  assert.equal(ids(live.shown), 'c2 c1')
  live = take(live, events(call(1, 'succeeded'), call(3)), false, none)
  assert.equal(ids(live.shown), 'c3 c2 c1')
  assert.equal(live.shown[2]?.state, 'succeeded')
})

test('while the page is held new calls wait, and what is shown still changes', () => {
  let live = take(nothing, events(call(1)), false, none)
  live = take(live, events(call(2), call(3), call(1, 'failed')), true, none)
  assert.equal(ids(live.shown), 'c1')
  assert.equal(live.shown[0]?.state, 'failed')
  assert.equal(ids(live.waiting), 'c3 c2')
  live = take(live, events(call(2, 'succeeded')), false, none)
  assert.equal(ids(live.waiting), 'c3 c2')
  assert.equal(ids(release(live).shown), 'c3 c2 c1')
  assert.equal(release(live).shown[1]?.state, 'succeeded')
})

test('a call of the list below is not shown a second time', () => {
  const live = take(nothing, events(call(9, 'succeeded')), false, (id) => id === 'c9')
  assert.equal(live.shown.length, 0)
  assert.equal(newest(live, call(9)).state, 'succeeded')
  assert.equal(newest(live, call(8)).state, 'running')
})

test('an event that comes late does not bring an ended call back to life', () => {
  const live = take(nothing, events(call(1), call(1, 'succeeded'), call(1, 'running')), false, none)
  assert.equal(live.shown[0]?.state, 'succeeded')
})

test('not more than a bounded number is kept, and the page can say how many went', () => {
  const many = Array.from({ length: mostKept + 7 }, (_, i) => call(i))
  const shown = take(nothing, events(...many), false, none)
  assert.equal(shown.shown.length, mostKept)
  assert.equal(shown.dropped, 7)
  assert.equal(shown.shown[0]?.invocation_id, `c${mostKept + 6}`)
  const held = take(shown, events(...Array.from({ length: mostKept + 1 }, (_, i) => call(10_000 + i))), true, none)
  assert.equal(held.shown.length + held.waiting.length, mostKept)
  const changed = take(nothing, events(...many.map((c) => ({ ...c, state: 'failed' }))), false, () => true)
  assert.equal(changed.changed.size, mostKept)
})

test('gaps of the server are counted', () => {
  assert.equal(take(nothing, [{ type: 'gap', missed: 3 }, { type: 'gap', missed: 4 }], false, none).missed, 7)
})

test('the anchor is after the newest row, so that the list keeps it', () => {
  assert.equal(anchorOf(undefined), undefined)
  assert.equal(anchorOf({ ...call(1), created_at: '2026-01-02T03:04:05.678901Z' }), '2026-01-02T03:04:05.679Z')
  assert.equal(anchorOf({ ...call(1), created_at: 'nonsense' }), undefined)
})
