import type { components } from '../../core/schema'

// What GET /api/v1/overview answers, as series that a chart draws.

export type Overview = components['schemas']['OverviewReport']

/** One line of a chart: null where there is nothing to draw, as the latency of no calls. */
export interface Series { label: string; values: (number | null)[]; colour: string }

/** The seconds since 1970 of each point, as charts want them. */
export const seconds = (points: Overview['points']) => points.map((p) => Date.parse(p.at) / 1000)

/** Calls a minute by how they ended. */
export function rates(o: Overview): Series[] {
  const minute = 60 / Math.max(o.step_s, 1)
  const of = (label: string, colour: string, key: 'succeeded' | 'failed' | 'refused'): Series => ({ label, colour, values: o.points.map((p) => p[key] * minute) })
  return [of('Succeeded', '--ok', 'succeeded'), of('Failed', '--bad', 'failed'), of('Refused', '--warn', 'refused')]
}

/** How long calls took. */
export function latencies(o: Overview): Series[] {
  const of = (label: string, colour: string, key: 'p50_ms' | 'p95_ms' | 'p99_ms'): Series => ({ label, colour, values: o.points.map((p) => (p.calls > 0 ? p[key] : null)) })
  return [of('Half within', '--ok', 'p50_ms'), of('95 in 100 within', '--warn', 'p95_ms'), of('99 in 100 within', '--bad', 'p99_ms')]
}

export const costs = (o: Overview): Series[] => [{ label: 'Cost', colour: '--accent', values: o.points.map((p) => p.cost_usd) }]

/** A part of a whole between 0 and 1; 0 of nothing. */
export const share = (part: number, whole: number) => (whole > 0 ? part / whole : 0)
