import { Exact } from '../../../core/exact'
import { Missing } from './schema'

/** What is wrong at a place of the arguments; pointer is a JSON Pointer. */
export interface Fault { pointer: string; message: string }

/** The JSON number that a text is; undefined if it is none. Digits stay as they were typed. */
export function numberOf(text: string): number | Exact | undefined {
  const trimmed = text.trim()
  if (!/^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$/.test(trimmed)) return undefined
  const n = Number(trimmed)
  return String(n) === trimmed && (Number.isSafeInteger(n) || !Number.isInteger(n)) ? n : new Exact(trimmed)
}

/** Writes a value as JSON with its numbers as they were typed. What is not entered is left out. */
export function json(value: unknown, indent = '', step = '  '): string {
  const inner = indent + step
  const line = step === '' ? '' : '\n'
  if (value instanceof Exact) return value.text
  if (value instanceof Missing || value === undefined) return 'null'
  if (Array.isArray(value)) {
    const list = value.filter((v) => !(v instanceof Missing))
    if (list.length === 0) return '[]'
    return `[${line}${list.map((v) => inner + json(v, inner, step)).join(`,${line}`)}${line}${indent}]`
  }
  if (typeof value === 'object' && value !== null) {
    const all = Object.entries(value).filter(([, v]) => v !== undefined && !(v instanceof Missing))
    if (all.length === 0) return '{}'
    return `{${line}${all.map(([k, v]) => `${inner}${JSON.stringify(k)}:${step === '' ? '' : ' '}${json(v, inner, step)}`).join(`,${line}`)}${line}${indent}}`
  }
  return JSON.stringify(value)
}

const escape = (name: string) => name.replaceAll('~', '~0').replaceAll('/', '~1')

/** The pointer of a member or element below another. */
export const below = (pointer: string, name: string | number) => `${pointer}/${escape(String(name))}`

/** What was entered and cannot be sent. */
export function unfinished(value: unknown, pointer = ''): Fault[] {
  if (value instanceof Missing) return [{ pointer, message: value.text === '' ? 'Enter a value, or remove this line.' : 'This is not a number or JSON.' }]
  if (Array.isArray(value)) return value.flatMap((v, i) => unfinished(v, below(pointer, i)))
  if (typeof value === 'object' && value !== null && !(value instanceof Exact)) return Object.entries(value).flatMap(([k, v]) => unfinished(v, below(pointer, k)))
  return []
}

/** An object with a member set, or without it where the value is undefined. The order of members stays. */
export function withMember(object: Record<string, unknown>, name: string, value: unknown): Record<string, unknown> {
  const next = { ...object }
  if (value === undefined) delete next[name]
  else Object.defineProperty(next, name, { value, enumerable: true, writable: true, configurable: true }) // "__proto__" too
  return next
}

/** The faults of details.errors. What is said of an object because a member is missing is said of the member. */
export function faultsOf(errors: unknown): Fault[] {
  if (!Array.isArray(errors)) return []
  return errors.map((one: { pointer?: unknown; rule?: unknown; message?: unknown }) => {
    const fault = { pointer: String(one?.pointer ?? ''), message: String(one?.message ?? '') }
    const missing = one?.rule === 'required' && /^the property ("(?:[^"\\]|\\.)*") is missing/.exec(fault.message)
    if (!missing) return fault
    try { return { ...fault, pointer: below(fault.pointer, JSON.parse(missing[1]!) as string) } } catch { return fault }
  })
}
