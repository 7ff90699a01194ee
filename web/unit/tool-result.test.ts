import assert from 'node:assert/strict'
import { test } from 'node:test'
import { cell, decode, numeric, pictureType, picturesOf, tableOf, textOf } from '../src/areas/tool/result/shape'
import { Exact } from '../src/core/exact'

test('the table of a result: itself, its rows, or its longest list', () => {
  assert.equal(tableOf([{ a: 1 }, { b: 2 }])?.path, '')
  assert.deepEqual(tableOf([{ a: 1 }, { b: 2 }])?.columns, ['a', 'b'])
  const sql = tableOf({ rows: [{ id: 1 }], row_count: 1, truncated: false, columns: [{ name: 'id', type: 'int8' }, { name: 'b', type: 'text' }] })
  assert.deepEqual([sql?.path, sql?.whole], ['rows', true])
  assert.equal(tableOf({ id: 1, customer: 'Ada', total: 3, lines: [{ n: 1 }] })?.whole, false)
  for (const none of [[], [1, 2], 'x', null, { a: { b: 1 } }, [[1]], [new Exact('1')]]) assert.equal(tableOf(none), undefined)
  const wide = tableOf([Object.fromEntries(Array.from({ length: 60 }, (_, i) => [`c${i}`, i]))])
  assert.deepEqual([wide?.columns.length, wide?.more], [40, 20])
})

test('a picture is known by its bytes and never by what is said of it', () => {
  const png = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0]
  assert.equal(pictureType(Uint8Array.from(png)), 'image/png')
  assert.equal(pictureType(new TextEncoder().encode('<svg xmlns="http://www.w3.org/2000/svg">')), undefined)
  assert.equal(pictureType(new TextEncoder().encode('<html><script>')), undefined)
  assert.equal(pictureType(new TextEncoder().encode('RIFFxxxxWEBPVP8 ')), 'image/webp')
  const base64 = Buffer.from(png).toString('base64')
  assert.equal(picturesOf({ content: [{ type: 'image', data: base64, mimeType: 'text/html' }] })[0]?.type, 'image/png')
  assert.equal(picturesOf({ content: [{ type: 'image', data: btoa('<svg onload="x()">........'), mimeType: 'image/png' }] }).length, 0)
  assert.equal(picturesOf({ file: { base64 } }).length, 1)
  assert.equal(picturesOf(Array.from({ length: 50 }, () => ({ base64 }))).length, 12)
  assert.equal(decode('%%%'), undefined)
})

test('the text of a result', () => {
  assert.equal(textOf('a'), 'a')
  assert.equal(textOf({ content: [{ type: 'text', text: 'a' }, { type: 'image' }, { type: 'text', text: 'b' }] }), 'a\n\nb')
  assert.equal(textOf({ text: 'short' }), 'short')
  assert.equal(textOf({ text: 'short', n: 1 }), undefined)
  assert.equal(textOf({ body: 'two\nlines', n: 1 }), 'two\nlines')
  assert.equal(textOf(7), undefined)
})

test('cells and columns of numbers', () => {
  const rows = [{ a: 1, b: 'x' }, { a: null, b: 2 }, { a: new Exact('12345678901234567890') }]
  assert.deepEqual([numeric(rows, 'a'), numeric(rows, 'b'), numeric(rows, 'none')], [true, false, false])
  assert.equal(cell(rows[2]!.a), '12345678901234567890')
  assert.deepEqual([cell(undefined), cell(null), cell(false), cell({ a: 1 })], ['', 'null', 'false', '{"a":1}'])
})
