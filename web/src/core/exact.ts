// JSON whose numbers stay as they were written. A number that a JavaScript number cannot hold becomes an Exact.

export class Exact {
  readonly text: string
  constructor(text: string) { this.text = text }
  toString() { return this.text }
  toJSON(): unknown { return (JSON as unknown as { rawJSON(text: string): unknown }).rawJSON(this.text) }
}

const long = /[0-9][0-9.]{14}|[eE][+-]?[0-9]{3}/

/** Parses JSON. */
export function parse(text: string): unknown {
  if (!long.test(text)) return JSON.parse(text)
  return JSON.parse(text, ((_key: string, value: unknown, context?: { source?: string }) =>
    typeof value === 'number' && context?.source !== undefined && !holds(value, context.source) ? new Exact(context.source) : value) as (key: string, value: unknown) => unknown)
}

// holds reports whether the number is what the text says.
function holds(value: number, source: string): boolean {
  if (/^-?[0-9]+$/.test(source)) return Number.isSafeInteger(value)
  return Number.isFinite(value) && digits(source) === digits(String(value))
}

function digits(text: string): string {
  return text.replace(/[eE].*$/, '').replace(/[-+.]/g, '').replace(/^0+/, '').replace(/0+$/, '')
}

/** Writes a value as JSON with an indent of two. */
export function write(value: unknown, indent = 2): string {
  return JSON.stringify(value, null, indent) ?? ''
}
