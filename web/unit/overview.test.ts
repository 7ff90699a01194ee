import assert from 'node:assert/strict'
import { test } from 'node:test'
import { latencies, rates, share, type Overview } from '../src/areas/overview/model.ts'

const none = { calls: 0, succeeded: 0, failed: 0, refused: 0, cache_hits: 0, cost_usd: 0, p50_ms: 0, p95_ms: 0, p99_ms: 0 }
const overview: Overview = {
  node: 'n', since: '2026-01-01T00:00:00Z', window_s: 60, step_s: 30, codes: [], running: 0, queued: 0, pending_approvals: 0, totals: none,
  points: [{ ...none, at: '2026-01-01T00:00:00Z', calls: 4, succeeded: 3, failed: 1, p50_ms: 2 }, { ...none, at: '2026-01-01T00:00:30Z' }],
}

test('calls of a step are shown by the minute', () => {
  assert.deepEqual(rates(overview).map((s) => s.values), [[6, 0], [2, 0], [0, 0]])
})

test('no calls have no latency, not one of zero', () => {
  assert.deepEqual(latencies(overview)[0]?.values, [2, null])
})

test('a part of nothing is nothing', () => {
  assert.equal(share(1, 0), 0)
  assert.equal(share(1, 4), 0.25)
})
