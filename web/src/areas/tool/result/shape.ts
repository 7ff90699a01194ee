import { Exact } from '../../../core/exact'
import { json } from '../form/value'

// What a result can be shown as. Everything in it comes from a tool, so a picture is known by its own first bytes and
// never by what is said of it.

export interface Table {
  path: string // where in the result
  columns: string[]
  rows: Record<string, unknown>[]
  more: number // columns that are left out
  whole: boolean // it is all, or nearly all, of the result
}
export interface Picture { type: string; bytes: Uint8Array<ArrayBuffer> }

const object = (v: unknown): v is Record<string, unknown> => typeof v === 'object' && v !== null && !Array.isArray(v) && !(v instanceof Exact)

const mostColumns = 40

const usual = /^(rows|items|results|records|data|list|values|entries)$/

/** The list of objects in a result: itself, or the longest one up to two levels down, of which "rows" and the like come first. */
export function tableOf(value: unknown): Table | undefined {
  let best: Table | undefined
  let most = 0
  const visit = (v: unknown, path: string, name: string, among: number, depth: number) => {
    const rows = rowsOf(v)
    const points = rows ? rows.length + (usual.test(name) ? 1e6 : 0) : 0
    if (rows && points > most) {
      const names = new Set<string>()
      for (const row of rows) for (const column of Object.keys(row)) names.add(column)
      const columns = [...names]
      best = { path, columns: columns.slice(0, mostColumns), rows, more: Math.max(0, columns.length - mostColumns), whole: path === '' || usual.test(name) || (!path.includes('.') && (rows.length >= 3 || among <= 2)) }
      most = points
    }
    if (depth > 0 && object(v)) for (const [key, one] of Object.entries(v)) visit(one, path ? `${path}.${key}` : key, key, Object.keys(v).length, depth - 1)
  }
  visit(value, '', '', 1, 2)
  return best
}

function rowsOf(v: unknown): Record<string, unknown>[] | undefined {
  return Array.isArray(v) && v.length > 0 && v.every(object) && v.some((row) => Object.keys(row).length > 0) ? v : undefined
}

/** The texts of a result: itself, its only text, or the text parts of an MCP server's answer. */
export function textOf(value: unknown): string | undefined {
  if (typeof value === 'string') return value
  if (!object(value)) return undefined
  if (Array.isArray(value.content)) {
    const parts = value.content.filter((one): one is { text: string } => object(one) && one.type === 'text' && typeof one.text === 'string')
    if (parts.length > 0) return parts.map((one) => one.text).join('\n\n')
  }
  for (const name of ['text', 'content', 'body', 'markdown', 'output']) {
    const one = value[name]
    if (typeof one === 'string' && (one.length > 80 || one.includes('\n') || Object.keys(value).length === 1)) return one
  }
  return undefined
}

const signs: [type: string, at: number, bytes: number[]][] = [
  ['image/png', 0, [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]],
  ['image/jpeg', 0, [0xff, 0xd8, 0xff]],
  ['image/gif', 0, [0x47, 0x49, 0x46, 0x38]],
  ['image/webp', 8, [0x57, 0x45, 0x42, 0x50]],
]

/** Which picture the bytes are: png, jpeg, gif or webp; undefined for anything else, such as SVG. */
export function pictureType(bytes: Uint8Array): string | undefined {
  return signs.find(([, at, sign]) => sign.every((b, i) => bytes[at + i] === b))?.[0]
}

/** The bytes of base64; undefined if it is none. */
export function decode(base64: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    return Uint8Array.from(atob(base64.replaceAll('-', '+').replaceAll('_', '/')), (c) => c.charCodeAt(0))
  } catch {
    return undefined
  }
}

const mostPictures = 12
const mostBase64 = 8 << 20

/** The pictures inside of a result: parts of an MCP answer, and members called base64. */
export function picturesOf(value: unknown): Picture[] {
  const found: Picture[] = []
  const take = (text: unknown) => {
    if (typeof text !== 'string' || text.length < 16 || text.length > mostBase64 || found.length >= mostPictures) return
    const bytes = decode(text)
    const type = bytes && pictureType(bytes)
    if (bytes && type) found.push({ type, bytes })
  }
  const visit = (v: unknown, depth: number) => {
    if (depth === 0) return
    if (Array.isArray(v)) for (const one of v.slice(0, 100)) visit(one, depth - 1)
    else if (object(v)) {
      take(v.base64)
      if (v.type === 'image') take(v.data)
      if (object(v.resource)) take(v.resource.blob)
      for (const one of Object.values(v)) if (typeof one === 'object') visit(one, depth - 1)
    }
  }
  visit(value, 5)
  return found
}

/** A cell's value as text. */
export function cell(v: unknown): string {
  if (v === undefined) return ''
  if (typeof v === 'string') return v
  if (v instanceof Exact) return v.text
  return typeof v === 'object' ? json(v, '', '') : String(v)
}

/** Whether a column holds numbers alone, which stand at the right. */
export function numeric(rows: Record<string, unknown>[], column: string): boolean {
  let seen = false
  for (const row of rows) {
    const v = row[column]
    if (v === null || v === undefined) continue
    if (typeof v !== 'number' && !(v instanceof Exact)) return false
    seen = true
  }
  return seen
}
