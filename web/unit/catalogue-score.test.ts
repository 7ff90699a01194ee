import assert from 'node:assert/strict'
import { test } from 'node:test'
import { pieces, sum, widths } from '../src/areas/catalogue/score'

const parts = { semantic: 0.5, keyword: 1, history: 0, success: 0.9, complexity: 0.5, action: -1, learned: 0.3, named: false }
const weights = { semantic: 0.4, keyword: 0.3, history: 0.2, success: 0.1, complexity: 0.1 }

test('the pieces of a score add up to it', () => {
  const list = pieces(parts, weights)
  const score = list.reduce((all, p) => all + p.adds, 0)
  assert.ok(Math.abs(score - (0.3 + 0.2 + 0.09 - 0.05 - 0.05)) < 1e-9, String(score))
  assert.deepEqual(list.map((p) => p.name), ['words', 'meaning', 'history', 'success', 'action', 'complexity'])
})

test('what takes off has no width, and the best fills the bar', () => {
  const list = pieces(parts, weights)
  const wide = widths(list, sum(list))
  assert.ok(Math.abs(wide.reduce((a, b) => a + b, 0) - 100) < 1e-9)
  assert.equal(wide[4], 0)
  assert.equal(wide[5], 0)
  assert.deepEqual(widths(list, 0), [0, 0, 0, 0, 0, 0])
})
