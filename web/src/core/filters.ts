import { useCallback, useMemo } from 'react'
import { useLocation, useSearch } from 'wouter'

/** How a filter is written in the URL. What read returns for null is the default, which is not written. */
export interface Codec<T> { read: (values: string[]) => T; write: (value: T) => string[] }
export type Spec = Record<string, Codec<never> | Codec<any>> // oxlint-disable-line typescript/no-explicit-any
export type Filters<S extends Spec> = { [K in keyof S]: S[K] extends Codec<infer T> ? T : never }

/** Free text; default "". */
export const text: Codec<string> = { read: (v) => v[0] ?? '', write: (v) => (v === '' ? [] : [v]) }
/** Several values, each its own parameter; default none. */
export const list: Codec<string[]> = { read: (v) => v, write: (v) => v }
/** Yes or not said. */
export const flag: Codec<boolean> = { read: (v) => v[0] === 'true', write: (v) => (v ? ['true'] : []) }
/** One of some words; the first is the default. */
export const choice = <T extends string>(...words: [T, ...T[]]): Codec<T> => ({
  read: (v) => words.find((word) => word === v[0]) ?? words[0],
  write: (v) => (v === words[0] ? [] : [v]),
})
/** A whole number with a default. */
export const whole = (or: number): Codec<number> => ({
  read: (v) => (/^-?[0-9]{1,15}$/.test(v[0] ?? '') ? Number(v[0]) : or),
  write: (v) => (v === or ? [] : [String(v)]),
})

/** Reads filters out of a query string. */
export function readFilters<S extends Spec>(spec: S, query: string): Filters<S> {
  const params = new URLSearchParams(query)
  return Object.fromEntries(Object.entries(spec).map(([name, codec]) => [name, codec.read(params.getAll(name))])) as Filters<S>
}

/** Writes filters into a query string; parameters that are not of the spec stay. */
export function writeFilters<S extends Spec>(spec: S, filters: Filters<S>, query = ''): string {
  const params = new URLSearchParams(query)
  for (const [name, codec] of Object.entries(spec)) {
    params.delete(name)
    for (const value of (codec as Codec<unknown>).write(filters[name])) params.append(name, value)
  }
  return params.toString()
}

/**
 * The filters of a page, which are its URL: `const [f, set] = useFilters(spec)`, with the spec made outside of the
 * component. set takes the filters that change and replaces the entry in the history.
 */
export function useFilters<S extends Spec>(spec: S): [Filters<S>, (change: Partial<Filters<S>>) => void] {
  const query = useSearch()
  const [path, navigate] = useLocation()
  const filters = useMemo(() => readFilters(spec, query), [spec, query])
  const set = useCallback((change: Partial<Filters<S>>) => {
    const next = writeFilters(spec, { ...readFilters(spec, query), ...change }, query)
    navigate(next === '' ? path : `${path}?${next}`, { replace: true })
  }, [spec, query, path, navigate])
  return [filters, set]
}
