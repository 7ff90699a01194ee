import assert from 'node:assert/strict'
import { test } from 'node:test'
import { choice, flag, list, readFilters, text, whole, writeFilters } from '../src/core/filters.ts'
import * as format from '../src/core/format.ts'
import { Problem } from '../src/core/problem.ts'
import { Reader } from '../src/core/sse.ts'
import { diffLines } from '../src/parts/diff.ts'

test('filters come back from the URL as they went in, and defaults are not written', () => {
  const spec = { q: text, state: list, held: flag, sort: choice('id', '-id'), page: whole(1) }
  const none = readFilters(spec, '')
  assert.deepEqual(none, { q: '', state: [], held: false, sort: 'id', page: 1 })
  assert.equal(writeFilters(spec, none), '')
  const some = { q: 'a & b=c #', state: ['active', 'x,y'], held: true, sort: '-id', page: 3 } as const
  assert.deepEqual(readFilters(spec, writeFilters(spec, { ...some, state: [...some.state] })), some)
  // What is not of the spec stays; what is not one of the words is the default.
  assert.equal(writeFilters(spec, none, 'tab=usage&q=old'), 'tab=usage')
  assert.equal(readFilters(spec, 'sort=; drop&page=1e9').sort, 'id')
  assert.equal(readFilters(spec, 'page=1e9').page, 1)
})

test('server-sent events are read whatever the pieces they come in', () => {
  const all = 'id: 7\nevent: state\ndata: {"a":1}\ndata: 2\n\n: comment\r\nretry: 250\r\ndata:x\r\n\r\nevent: unfinished\ndata: y\n'
  for (let size = 1; size <= all.length; size++) {
    const reader = new Reader()
    const got = []
    for (let at = 0; at < all.length; at += size) got.push(...reader.read(all.slice(at, at + size)))
    assert.deepEqual(got, [{ id: '7', type: 'state', data: '{"a":1}\n2' }, { id: '7', type: 'message', data: 'x' }], `in pieces of ${size}`)
    assert.equal(reader.retry, 250)
  }
})

test('a difference has each line of both sides once, in order', () => {
  const cases = [['', ''], ['a', 'a'], ['a\nb\nc', 'a\nc'], ['a\nb', 'b\na'], ['x\ny\nz', '1\n2'], ['a\na\na', 'a\na'], ['same\nold\nsame', 'same\nnew\nmore\nsame']]
  for (const [before, after] of cases) {
    const lines = diffLines(before!, after!)
    assert.equal(lines.flatMap((l) => l.old ?? []).join('\n'), before)
    assert.equal(lines.flatMap((l) => l.new ?? []).join('\n'), after)
  }
  assert.equal(diffLines('a\nb\nc', 'a\nc').filter((l) => l.old !== l.new).length, 1)
})

test('a long text is compared without taking all memory', () => {
  const many = (word: string) => Array.from({ length: 20_000 }, (_, i) => `${word} ${i}`).join('\n')
  assert.equal(diffLines(many('a'), many('b')).length, 20_000)
})

test('sizes and times are written in their units', () => {
  assert.equal(format.bytes(999), '999 B')
  assert.equal(format.bytes(1_500_000), '1.5 MB')
  assert.equal(format.duration(0.25), '250 µs')
  assert.equal(format.duration(1234), '1.2 s')
  assert.equal(format.duration(3_723_000), '1 h 2 min')
  assert.equal(format.count(1, 'tool'), '1 tool')
  assert.equal(format.count(2500, 'entry', 'entries'), '2,500 entries')
})

test('a refusal is read whatever its body is', () => {
  const p = new Problem(422, { title: 'Input validation failed', code: 'E3310', detail: 'text is missing', details: { errors: [{ pointer: '/text', rule: 'required', message: 'is missing' }] } })
  assert.deepEqual(p.faults, [{ pointer: '/text', message: 'is missing' }])
  for (const body of [undefined, null, 'text', [], { details: { errors: 'no list' } }]) assert.deepEqual(new Problem(502, body).faults, [])
  assert.equal(new Problem(502, '<html>').title, 'HTTP 502')
})
