import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Exact } from '../src/core/exact'
import { Missing, read, start, wayOf, type Node } from '../src/areas/tool/form/schema'
import { below, faultsOf, json, numberOf, unfinished, withMember } from '../src/areas/tool/form/value'

const kind = (schema: unknown, root: unknown = schema) => read(schema, root).kind
function of<K extends Node['kind']>(k: K, schema: unknown, root: unknown = schema): Extract<Node, { kind: K }> {
  const node = read(schema, root)
  assert.equal(node.kind, k)
  return node as Extract<Node, { kind: K }>
}

test('a type says what is asked for', () => {
  const kinds: [unknown, Node['kind']][] = [
    [{ type: 'string' }, 'text'], [{ type: 'integer' }, 'number'], [{ type: 'number' }, 'number'], [{ type: 'boolean' }, 'truth'], [{ type: 'null' }, 'nothing'],
    [{ type: 'object' }, 'object'], [{ type: 'array' }, 'list'], [{ enum: ['a', 'b'] }, 'choice'], [{ const: 3 }, 'choice'], [{ const: null }, 'nothing'],
    [{ type: 'string', contentEncoding: 'base64' }, 'file'], [{ type: 'string', format: 'binary' }, 'file'], [{ type: 'string', format: 'byte' }, 'file'],
    [{}, 'json'], [true, 'json'], [false, 'json'], [{ type: 'wood' }, 'json'], [17, 'json'],
    [{ properties: { a: {} } }, 'object'], [{ items: {} }, 'list'], [{ minLength: 1 }, 'text'], [{ format: 'date' }, 'text'], [{ maximum: 3 }, 'number'],
    [{ type: ['string', 'integer'] }, 'union'], [{ anyOf: [{ type: 'string' }, { type: 'integer' }] }, 'union'],
  ]
  for (const [schema, want] of kinds) assert.equal(kind(schema), want, JSON.stringify(schema))
})

test('null beside another type makes the value nullable and no union', () => {
  for (const schema of [{ type: ['string', 'null'] }, { type: 'string', nullable: true }, { anyOf: [{ type: 'string' }, { type: 'null' }] }, { oneOf: [{ const: null }, { type: 'string' }] }]) {
    const node = of('text', schema)
    assert.equal(node.nullable, true, JSON.stringify(schema))
  }
  assert.equal(of('choice', { enum: ['a', null] }).nullable, true)
  assert.deepEqual(of('choice', { enum: ['a', null] }).values, ['a'])
})

test('members that are required come first, also those without a schema', () => {
  const node = of('object', { type: 'object', properties: { a: { type: 'string' }, b: { type: 'string' } }, required: ['b', 'c'] })
  assert.deepEqual(node.members.map((m) => [m.name, m.required]), [['b', true], ['c', true], ['a', false]])
  assert.equal(node.extra, null)
  assert.deepEqual(of('object', { type: 'object' }).extra, {})
  assert.deepEqual(of('object', { type: 'object', additionalProperties: { type: 'integer' } }).extra, { type: 'integer' })
  assert.equal(of('object', { type: 'object', properties: { a: {} }, additionalProperties: false }).extra, null)
})

test('allOf is one schema: members, demands and bounds of all parts', () => {
  const root = { $defs: { Base: { type: 'object', properties: { id: { type: 'string' } }, required: ['id'] } } }
  const node = of('object', { allOf: [{ $ref: '#/$defs/Base' }, { properties: { id: { minLength: 3 }, n: { type: 'integer' } }, required: ['n'] }] }, root)
  assert.deepEqual(node.members.map((m) => m.name), ['id', 'n'])
  assert.equal(of('text', node.members[0]!.schema, root).least, 3)
  const bounds = of('number', { allOf: [{ type: 'number', minimum: 1 }, { type: 'integer', minimum: 5, maximum: 9 }] })
  assert.deepEqual([bounds.whole, bounds.minimum, bounds.maximum], [true, '5', '9'])
  assert.equal(kind({ allOf: [{ type: 'string' }, { type: 'integer' }] }), 'json')
})

test('references: local ones and anchors are followed, others are entered as JSON, and no schema hangs', () => {
  const root = { $defs: { 'a/b~c': { type: 'integer' }, Tree: { type: 'object', properties: { left: { $ref: '#/$defs/Tree' } }, required: ['left'] }, Named: { $anchor: 'n', type: 'boolean' }, Self: { $ref: '#/$defs/Self' } } }
  assert.equal(kind({ $ref: '#/$defs/a~1b~0c' }, root), 'number')
  assert.equal(kind({ $ref: '#n' }, root), 'truth')
  assert.equal(kind({ $ref: 'other.json' }, root), 'json')
  assert.equal(kind({ $ref: '#/$defs/gone' }, root), 'json')
  assert.equal(kind({ $ref: '#/$defs/Self' }, root), 'json')
  assert.equal(of('object', { $ref: '#/$defs/Tree' }, root).members[0]!.name, 'left')
  assert.ok(start({ $ref: '#/$defs/Tree' }, root)) // which ends
  assert.equal(read({ $ref: '#/$defs/a~1b~0c', description: 'here' }, root).description, 'here')
})

test('a union is chosen by words: titles, what its discriminator must be, types', () => {
  const card = { properties: { kind: { const: 'card' }, number: { type: 'string' } }, required: ['kind'] }
  const cash = { properties: { kind: { const: 'cash' } }, required: ['kind'] }
  const node = of('union', { type: 'object', oneOf: [card, cash, { title: 'Voucher', properties: { code: {} } }, { type: 'object', required: ['x', 'y'] }] })
  assert.deepEqual(node.ways.map((w) => w.label), ['kind: card', 'kind: cash', 'Voucher', 'With x, y'])
  assert.equal(wayOf(node.ways, { kind: 'cash' }, {}), 1)
  assert.equal(wayOf(node.ways, { code: 1 }, {}), 2)
  assert.deepEqual(start(node.ways[1]!.schema, {}), { kind: 'cash' })
  const types = of('union', { anyOf: [{ type: 'string' }, { type: 'integer' }, { type: 'array' }] })
  assert.deepEqual(types.ways.map((w) => w.label), ['Text', 'Whole number', 'List'])
  assert.equal(wayOf(types.ways, new Exact('12345678901234567890'), {}), 1)
  assert.equal(wayOf(types.ways, ['a'], {}), 2)
  assert.deepEqual(of('choice', { oneOf: [{ const: 1, title: 'one' }, { const: 2 }] }).labels, ['one', '2'])
  assert.equal(kind({ type: 'object', properties: { a: {}, b: {} }, anyOf: [{ required: ['a'] }, { required: ['b'] }] }), 'object')
  assert.deepEqual(of('union', { anyOf: [{ type: 'object' }, { type: 'object' }] }).ways.map((w) => w.label), ['Object 1', 'Object 2'])
})

test('what a form begins with: defaults, fixed values, and required objects', () => {
  const schema = { type: 'object', properties: { a: { type: 'object', properties: { b: { const: 1 }, c: { type: 'string' } }, required: ['b', 'c'] }, d: { default: 5 }, e: { type: 'string' } }, required: ['a', 'd'] }
  assert.deepEqual(start(schema, schema), { a: { b: 1 }, d: 5 })
  const list = start({ type: 'array', minItems: 2, items: { type: 'string' } }, {}) as unknown[]
  assert.ok(list.length === 2 && list.every((one) => one instanceof Missing))
})

test('numbers stay as they were typed', () => {
  assert.equal(numberOf('12'), 12)
  assert.equal((numberOf('9007199254740993') as Exact).text, '9007199254740993')
  assert.equal((numberOf('1.0') as Exact).text, '1.0')
  assert.equal((numberOf('1e400') as Exact).text, '1e400')
  for (const text of ['', '-', '1.', '01', '0x10', 'NaN', '1 2', '٣']) assert.equal(numberOf(text), undefined, text)
  assert.equal(json({ id: new Exact('123456789012345678901'), n: 0.1 }, '', ''), '{"id":123456789012345678901,"n":0.1}')
})

test('absent, null and empty are three things', () => {
  assert.equal(json({ a: undefined, b: null, c: '' }, '', ''), '{"b":null,"c":""}')
  assert.deepEqual(withMember({ a: 1, b: 2 }, 'a', undefined), { b: 2 })
  assert.deepEqual(Object.keys(withMember({ a: 1, b: 2 }, 'a', null)), ['a', 'b'])
  assert.equal(json(withMember({}, '__proto__', 1), '', ''), '{"__proto__":1}')
})

test('what is not finished is found by its pointer, and is not sent', () => {
  const value = { 'a/b': [1, new Missing()], c: { d: new Missing('12x') } }
  assert.deepEqual(unfinished(value).map((f) => f.pointer), ['/a~1b/1', '/c/d'])
  assert.equal(json(value, '', ''), '{"a/b":[1],"c":{}}')
  assert.equal(below('/x', 'a~b/c'), '/x/a~0b~1c')
})

test('a fault of a member that is missing is shown at the member', () => {
  const errors = [
    { pointer: '/body', rule: 'required', message: 'the property "a/b" is missing; it must be string' },
    { pointer: '/body/n', rule: 'maximum', message: 'must be at most 100, not 900' },
    { pointer: '/x', rule: 'required', message: 'other words' },
  ]
  assert.deepEqual(faultsOf(errors).map((f) => f.pointer), ['/body/a~1b', '/body/n', '/x'])
  assert.deepEqual(faultsOf('none'), [])
})
