import { Exact } from '../../../core/exact'

// What a JSON Schema asks a person for, one level at a time: what lies below is read when it is shown, so that a schema
// that contains itself has a form too. What the form cannot say is entered as JSON; the server checks everything.

export type Schema = Record<string, unknown>

interface About {
  title: string
  description: string
  nullable: boolean
  deprecated: boolean
  fallback?: unknown // the schema's default
  examples: unknown[]
}

/** A member of an object. */
export interface Member { name: string; required: boolean; schema: Schema }
/** One way of a union, with the words it is chosen by. */
export interface Way { label: string; schema: Schema }

export type Node = About & (
  | { kind: 'text'; format: string; long: boolean; secret: boolean; least: number; most?: number; pattern?: string }
  | { kind: 'file' }
  | { kind: 'number'; whole: boolean; minimum?: string; maximum?: string }
  | { kind: 'truth' }
  | { kind: 'choice'; values: unknown[]; labels: string[] }
  | { kind: 'nothing' } // null and nothing else
  | { kind: 'object'; members: Member[]; extra: Schema | null }
  | { kind: 'list'; head: Schema[]; items: Schema | null; least: number; most?: number }
  | { kind: 'union'; ways: Way[] }
  | { kind: 'json'; why: string }
)

const is = (v: unknown): v is Schema => typeof v === 'object' && v !== null && !Array.isArray(v) && !(v instanceof Exact)
const strings = (v: unknown): string[] => (Array.isArray(v) ? v.filter((x) => typeof x === 'string') : typeof v === 'string' ? [v] : [])
const text = (v: unknown): string => (typeof v === 'string' ? v : '')
const count = (v: unknown): number | undefined => (typeof v === 'number' && v >= 0 ? v : undefined)
const written = (v: unknown): string | undefined => (typeof v === 'number' || v instanceof Exact ? String(v) : undefined)

/** A part of a schema that the form cannot say, with the reason. */
class Unsaid extends Error {}

/** Reads what a schema asks for; root is the document that its references point into. */
export function read(schema: unknown, root: unknown): Node {
  try {
    return node(plain(schema, root, 0), root)
  } catch (err) {
    if (!(err instanceof Unsaid)) throw err
    return { ...about(is(schema) ? schema : {}), kind: 'json', why: err.message }
  }
}

// plain resolves references and joins the parts of allOf.
function plain(schema: unknown, root: unknown, depth: number): Schema {
  if (schema === true || schema === undefined) return {}
  if (schema === false) throw new Unsaid('the schema allows no value here')
  if (!is(schema)) throw new Unsaid('this part of the schema cannot be read')
  if (depth > 40) throw new Unsaid('the schema refers to itself')
  let all = schema
  for (const name of ['$ref', '$dynamicRef', '$recursiveRef']) {
    if (typeof all[name] !== 'string') continue
    const { [name]: ref, ...beside } = all
    all = join(plain(find(ref as string, root), root, depth + 1), beside)
  }
  if (!Array.isArray(all.allOf)) return all
  const { allOf, ...rest } = all
  return (allOf as unknown[]).reduce<Schema>((sum, part) => join(sum, plain(part, root, depth + 1)), rest)
}

function find(ref: string, root: unknown): unknown {
  if (!ref.startsWith('#')) throw new Unsaid('the schema refers to another document')
  let at: unknown = root
  const path = decode(ref.slice(1))
  if (path !== '' && !path.startsWith('/')) {
    at = anchored(root, path, 0)
    if (at === undefined) throw new Unsaid(`the schema refers to ${ref}, which is not there`)
    return at
  }
  for (const part of path.split('/').slice(1)) {
    const name = part.replaceAll('~1', '/').replaceAll('~0', '~')
    at = Array.isArray(at) ? at[Number(name)] : is(at) && Object.hasOwn(at, name) ? at[name] : undefined
    if (at === undefined) throw new Unsaid(`the schema refers to ${ref}, which is not there`)
  }
  return at
}

function anchored(at: unknown, name: string, depth: number): unknown {
  if (depth > 20 || typeof at !== 'object' || at === null) return undefined
  if (is(at) && (at.$anchor === name || at.$dynamicAnchor === name)) return at
  for (const one of Object.values(at)) {
    const found = anchored(one, name, depth + 1)
    if (found !== undefined) return found
  }
  return undefined
}

function decode(ref: string): string {
  try { return decodeURIComponent(ref) } catch { return ref }
}

const least = new Set(['minimum', 'exclusiveMinimum', 'minLength', 'minItems'])
const most = new Set(['maximum', 'exclusiveMaximum', 'maxLength', 'maxItems'])

// join makes one schema of two that hold for the same value.
function join(a: Schema, b: Schema): Schema {
  const out: Schema = { ...a }
  for (const [name, value] of Object.entries(b)) {
    const other = out[name]
    if (other === undefined || ['title', 'description', 'default'].includes(name)) out[name] = value
    else if (name === 'properties' && is(other) && is(value)) {
      const both: Schema = { ...other }
      for (const [key, one] of Object.entries(value)) both[key] = Object.hasOwn(both, key) ? { allOf: [both[key], one] } : one
      out[name] = both
    } else if (name === 'required') out[name] = [...new Set([...strings(other), ...strings(value)])]
    else if (name === 'type') {
      const wide = (t: string, list: string[]) => list.includes(t) || (t === 'integer' && list.includes('number'))
      const [x, y] = [strings(other), strings(value)]
      const both = [...x.filter((t) => wide(t, y)), ...y.filter((t) => wide(t, x))]
      if (both.length === 0) throw new Unsaid('the parts of the schema want values of different types')
      out[name] = [...new Set(both)]
    } else if (name === 'enum' && Array.isArray(other) && Array.isArray(value)) {
      const known = new Set(other.map((v) => JSON.stringify(v)))
      out[name] = value.filter((v) => known.has(JSON.stringify(v)))
    } else if (least.has(name)) out[name] = Number(other) > Number(value) ? other : value
    else if (most.has(name)) out[name] = Number(other) < Number(value) ? other : value
    else if (name === 'items' || name === 'additionalProperties') out[name] = { allOf: [other, value] }
    else if (name === 'anyOf' || name === 'oneOf') throw new Unsaid('the schema has several choices for one value')
    else out[name] = value
  }
  return out
}

function about(s: Schema): About {
  const examples = Array.isArray(s.examples) ? s.examples : 'example' in s ? [s.example] : []
  return {
    title: text(s.title), description: text(s.description), nullable: false, deprecated: s.deprecated === true,
    ...('default' in s ? { fallback: s.default } : {}), examples,
  }
}

const typesOf = (s: Schema): string[] => {
  const said = strings(s.type)
  if (said.length > 0) return said
  if (is(s.properties) || Array.isArray(s.required) || s.additionalProperties !== undefined) return ['object']
  if (s.items !== undefined || Array.isArray(s.prefixItems)) return ['array']
  if (s.pattern !== undefined || s.minLength !== undefined || s.maxLength !== undefined || s.contentEncoding !== undefined || text(s.format) !== '') return ['string']
  if (s.minimum !== undefined || s.maximum !== undefined || s.multipleOf !== undefined) return ['number']
  return []
}

function node(s: Schema, root: unknown): Node {
  const base = about(s)
  if (Array.isArray(s.enum)) {
    const values = s.enum.filter((v) => v !== null)
    base.nullable = values.length < s.enum.length || s.nullable === true
    if (values.length === 0) return { ...base, nullable: false, kind: 'nothing' }
    return { ...base, kind: 'choice', values, labels: values.map(label) }
  }
  if ('const' in s) return s.const === null ? { ...base, kind: 'nothing' } : { ...base, kind: 'choice', values: [s.const], labels: [label(s.const)] }

  const choices = Array.isArray(s.oneOf) ? s.oneOf : Array.isArray(s.anyOf) ? s.anyOf : null
  if (choices) return union(s, choices, base, root)

  const kinds = typesOf(s)
  const real = kinds.filter((k) => k !== 'null')
  base.nullable = real.length < kinds.length || s.nullable === true
  if (real.length === 0) return kinds.length > 0 ? { ...base, nullable: false, kind: 'nothing' } : { ...base, kind: 'json', why: 'any value is allowed' }
  if (real.length > 1) return { ...base, kind: 'union', ways: real.map((type) => ({ label: words[type] ?? type, schema: { ...s, type, title: undefined, description: undefined } })) }
  switch (real[0]) {
    case 'string': {
      const format = text(s.format)
      if (s.contentEncoding === 'base64' || format === 'byte' || format === 'binary') return { ...base, kind: 'file' }
      const limit = count(s.maxLength)
      const lines = /html|xml|markdown|json|sql|text\//.test(text(s.contentMediaType)) || (limit ?? 0) > 200
        || /^(body|content|text|message|prompt|sql|code|script|markdown|html)$/i.test(base.title)
      return { ...base, kind: 'text', format, long: lines && format === '', secret: format === 'password', least: count(s.minLength) ?? 0, most: limit, pattern: typeof s.pattern === 'string' ? s.pattern : undefined }
    }
    case 'integer':
    case 'number':
      return { ...base, kind: 'number', whole: real[0] === 'integer', minimum: written(s.minimum) ?? written(s.exclusiveMinimum), maximum: written(s.maximum) ?? written(s.exclusiveMaximum) }
    case 'boolean':
      return { ...base, kind: 'truth' }
    case 'object': {
      const required = strings(s.required)
      const properties = is(s.properties) ? s.properties : {}
      const members = Object.entries(properties)
        .filter(([, one]) => one !== false)
        .map(([name, one]) => ({ name, required: required.includes(name), schema: one === true ? {} : (one as Schema) }))
      for (const name of required) if (!Object.hasOwn(properties, name)) members.push({ name, required: true, schema: {} })
      members.sort((a, b) => Number(b.required) - Number(a.required))
      const open = s.additionalProperties
      const pattern = is(s.patternProperties) ? Object.values(s.patternProperties)[0] : undefined
      const extra = is(open) ? open : is(pattern) ? pattern : open === true || (open === undefined && members.length === 0) ? {} : null
      return { ...base, kind: 'object', members, extra }
    }
    case 'array': {
      const tuple = Array.isArray(s.prefixItems) ? s.prefixItems : Array.isArray(s.items) ? s.items : []
      const after = Array.isArray(s.items) ? s.additionalItems : s.items
      return { ...base, kind: 'list', head: tuple.map((one) => (is(one) ? one : {})), items: after === false ? null : is(after) ? after : {}, least: count(s.minItems) ?? 0, most: count(s.maxItems) }
    }
  }
  throw new Unsaid(`the type ${String(real[0]).slice(0, 40)} is not known`)
}

const words: Record<string, string> = { string: 'Text', number: 'Number', integer: 'Whole number', boolean: 'Yes or no', object: 'Object', array: 'List' }

function union(s: Schema, choices: unknown[], base: About, root: unknown): Node {
  const { oneOf: _1, anyOf: _2, title: _3, description: _4, default: _5, discriminator, ...shared } = s
  const open = choices.map((one) => plain(one, root, 1))
  const ways = open.filter((one) => !(one.type === 'null' || ('const' in one && one.const === null)))
  base.nullable = ways.length < open.length || s.nullable === true
  // oneOf of constants is an enumeration whose values have names.
  if (ways.length > 0 && ways.every((one) => 'const' in one && !is(one.const) && !Array.isArray(one.const))) {
    return { ...base, kind: 'choice', values: ways.map((one) => one.const), labels: ways.map((one) => text(one.title) || label(one.const)) }
  }
  if (ways.length === 1) {
    const one = read(join(shared, ways[0]!), root)
    return { ...one, title: base.title || one.title, description: base.description || one.description, nullable: base.nullable || one.nullable, ...('fallback' in base ? { fallback: base.fallback } : {}) }
  }
  if (ways.length === 0) return { ...base, nullable: false, kind: 'nothing' }
  // Ways that only demand members, as in anyOf: [{required: [a]}, {required: [b]}], leave the shape as it is.
  if (ways.every((one) => Object.keys(one).every((key) => key === 'required' || key === 'not' || key === 'title' || key === 'description'))) {
    return { ...node(shared, root), title: base.title, description: base.description, nullable: base.nullable }
  }
  const tag = is(discriminator) ? text(discriminator.propertyName) : ''
  const labels = ways.map((one) => nameOf(one, tag, root))
  return {
    ...base, kind: 'union',
    ways: ways.map((one, i) => ({ label: labels.indexOf(labels[i]!) === labels.lastIndexOf(labels[i]!) ? labels[i]! : `${labels[i]} ${i + 1}`, schema: join(shared, one) })),
  }
}

// nameOf finds words for one way of a union: its title, what its discriminator must be, its type.
function nameOf(way: Schema, tag: string, root: unknown): string {
  if (text(way.title)) return text(way.title)
  const properties = is(way.properties) ? way.properties : {}
  const names = tag && Object.hasOwn(properties, tag) ? [tag] : Object.keys(properties)
  for (const name of names) {
    let one: Schema
    try { one = plain(properties[name], root, 1) } catch { continue }
    const only = 'const' in one ? one.const : Array.isArray(one.enum) && one.enum.length === 1 ? one.enum[0] : undefined
    if (typeof only === 'string' || typeof only === 'number') return `${name}: ${only}`
  }
  const kind = typesOf(way).find((k) => k !== 'null') ?? ''
  const required = strings(way.required)
  if (kind === 'object' && required.length > 0) return `With ${required.slice(0, 3).join(', ')}`
  if (kind === 'string' && (way.contentEncoding === 'base64' || way.format === 'binary')) return 'File'
  return words[kind] ?? 'Any value'
}

/** A value in a line, as a label. */
export function label(v: unknown): string {
  return typeof v === 'string' ? v : v instanceof Exact ? v.text : JSON.stringify(v)
}

/** Which way of a union a value goes: the one that contradicts it least. */
export function wayOf(ways: Way[], value: unknown, root: unknown): number {
  let best = 0
  let most = -1
  ways.forEach((way, i) => {
    const fit = fits(way.schema, value, root)
    if (fit > most) [best, most] = [i, fit]
  })
  return best
}

function fits(schema: Schema, value: unknown, root: unknown): number {
  let s: Schema
  try { s = plain(schema, root, 1) } catch { return 0 }
  const kinds = typesOf(s)
  const kind = value === null ? 'null' : Array.isArray(value) ? 'array' : value instanceof Exact || typeof value === 'number' ? 'number' : typeof value
  const whole = kind === 'number' && (value instanceof Exact ? /^-?[0-9]+$/.test(value.text) : Number.isInteger(value))
  if (kinds.length > 0 && !kinds.includes(kind) && !(kinds.includes('integer') && whole)) return 0
  if ('const' in s && label(s.const) !== label(value)) return 0
  if (Array.isArray(s.enum) && !s.enum.some((one) => label(one) === label(value))) return 0
  if (!is(value)) return 2
  const properties = is(s.properties) ? s.properties : {}
  let points = 2
  for (const [name, one] of Object.entries(properties)) {
    if (!Object.hasOwn(value, name)) continue
    let p: Schema
    try { p = plain(one, root, 1) } catch { continue }
    const fixed = 'const' in p ? [p.const] : Array.isArray(p.enum) ? p.enum : undefined
    if (fixed && !fixed.some((v) => label(v) === label(value[name]))) return 1
    points += fixed ? 10 : 1
  }
  for (const name of strings(s.required)) if (!Object.hasOwn(value, name)) points -= 1
  return Math.max(points, 1)
}

/** What a value begins as when it is asked for: the default, the only choice, or members that are required and fixed. Absent otherwise. */
export function start(schema: unknown, root: unknown, depth = 0): unknown {
  const one = read(schema, root)
  if (one.fallback !== undefined) return one.fallback
  switch (one.kind) {
    case 'choice':
      return one.values.length === 1 ? one.values[0] : undefined
    case 'nothing':
      return null
    case 'union':
      return depth > 8 ? undefined : start(one.ways[0]!.schema, root, depth + 1)
    case 'object': {
      const value: Schema = {}
      if (depth > 8) return value
      for (const m of one.members) {
        if (!m.required) continue
        const v = start(m.schema, root, depth + 1)
        if (v !== undefined) value[m.name] = v
      }
      return value
    }
    case 'list': {
      const value: unknown[] = []
      if (depth > 8) return value
      for (let i = 0; i < Math.min(Math.max(one.least, one.head.length), 20); i++) value.push(start(one.head[i] ?? one.items ?? {}, root, depth + 1) ?? new Missing())
      return value
    }
    default:
      return undefined
  }
}

/** An element of a list for which nothing was entered yet, or text that is no number or JSON. It cannot be sent. */
export class Missing {
  readonly text: string
  constructor(text = '') { this.text = text }
}

/** What is asked for, in words. */
export function kindOf(node: Node): string {
  switch (node.kind) {
    case 'text': return [node.secret ? 'secret text' : node.format || 'text', node.most !== undefined ? `at most ${node.most} characters` : ''].filter(Boolean).join(', ')
    case 'number': return [node.whole ? 'whole number' : 'number', range(node.minimum, node.maximum)].filter(Boolean).join(', ')
    case 'truth': return 'yes or no'
    case 'choice': return 'choice'
    case 'file': return 'file'
    case 'object': return 'object'
    case 'list': return ['list', node.least > 0 ? `at least ${node.least}` : '', node.most !== undefined ? `at most ${node.most}` : ''].filter(Boolean).join(', ')
    case 'union': return 'one of several kinds'
    case 'nothing': return 'null'
    case 'json': return 'JSON'
  }
}

/** Bounds in words. */
export function range(minimum?: string, maximum?: string): string | undefined {
  if (minimum !== undefined && maximum !== undefined) return `${minimum} to ${maximum}`
  if (minimum !== undefined) return `from ${minimum}`
  if (maximum !== undefined) return `up to ${maximum}`
  return undefined
}
