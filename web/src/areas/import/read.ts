// Reading what people give to an import.

/** The lines of a text that say something; undefined if there is none. */
export function lines(text: string): string[] | undefined {
  const list = text.split('\n').map((line) => line.trim()).filter(Boolean)
  return list.length > 0 ? list : undefined
}

const reference = /^(secret|env|file|vault):\/\/\S+$/

/** Lines NAME=REFERENCE. A value in place of a reference is refused, and not repeated. */
export function pairs(text: string): { values: Record<string, string>; fault?: string } {
  const values: Record<string, string> = {}
  for (const line of lines(text) ?? []) {
    const at = line.indexOf('=')
    const name = line.slice(0, at).trim()
    const value = line.slice(at + 1).trim()
    if (at < 1) return { values, fault: 'Each line is a security scheme, = and a reference' }
    if (!reference.test(value)) return { values, fault: `${name} needs a reference, such as secret://${name}; a secret itself is set on the page Secrets` }
    values[name] = value
  }
  return { values }
}

/** A server of a client's file, as PUT /api/v1/servers takes it. */
export interface Found {
  name: string
  definition: Record<string, unknown>
  /** Values that stand in the file in plain text and look like secrets: kept apart and never shown. */
  secrets: { where: 'env' | 'headers'; name: string; value: string }[]
  fault?: string
}

const secretName = /(key|token|secret|passw|credential|auth|cookie|session|bearer|pat$)/i
const secretValue = /^(Bearer |Basic |sk-|ghp_|gho_|github_pat_|xox[a-z]-|AKIA|eyJ)|^[A-Za-z0-9+/_=-]{24,}$/

/** The servers in a file of Claude, Cursor, Gemini CLI (mcpServers), VS Code (servers) or Zed (context_servers). */
export function servers(text: string): Found[] {
  const file = JSON.parse(uncommented(text)) as Record<string, unknown>
  const all = object(file.mcpServers) ?? object(file.servers) ?? object(file.context_servers) ?? object(object(file.mcp)?.servers)
  if (!all) throw new Error('The file has none of mcpServers, servers and context_servers')
  return Object.entries(all).map(([name, entry]) => one(name, entry))
}

function one(name: string, entry: unknown): Found {
  const e = object(entry)
  const found: Found = { name: name.toLowerCase().replace(/[^a-z0-9_]+/g, '_').replace(/^[^a-z]+/, '').slice(0, 32), definition: {}, secrets: [] }
  if (!e) return { ...found, fault: 'it is not an object' }
  const command = object(e.command) ?? e
  const url = e.url ?? e.serverUrl ?? e.httpUrl
  if (typeof url === 'string') {
    found.definition = { transport: e.type === 'sse' ? 'sse' : 'http', url }
  } else if (typeof (command.command ?? command.path) === 'string') {
    const args = Array.isArray(command.args) ? command.args.filter((a): a is string => typeof a === 'string') : []
    const dir = e.cwd
    found.definition = { transport: 'stdio', command: [command.command ?? command.path, ...args], ...(typeof dir === 'string' ? { dir } : {}) }
  } else {
    return { ...found, fault: 'it has neither a command nor an address' }
  }
  if (e.disabled === true) found.definition.disabled = true
  for (const where of ['env', 'headers'] as const) {
    const values = object(where === 'env' ? (command.env ?? e.env) : e.headers)
    if (!values) continue
    const kept: Record<string, string> = {}
    for (const [key, raw] of Object.entries(values)) {
      const value = String(raw)
      if (!value.includes('://') && (secretName.test(key) || secretValue.test(value)) && value !== '') found.secrets.push({ where, name: key, value })
      else kept[key] = value
    }
    if (Object.keys(kept).length > 0) found.definition[where] = kept
  }
  const open = JSON.stringify([found.definition, found.secrets.map((s) => s.value)]).match(/\$\{[^}]*\}/)
  if (open) return { ...found, fault: `${open[0]} is filled in by the client: put a value or a reference in its place` }
  return found
}

/** The definition with references in place of what stands in plain text. */
export function sealed(found: Found, reference: (s: Found['secrets'][number]) => string): Record<string, unknown> {
  const definition = { ...found.definition }
  for (const s of found.secrets) definition[s.where] = { ...(definition[s.where] as Record<string, string> | undefined), [s.name]: reference(s) }
  return definition
}

/** The name under which a value is kept as a secret. */
export function secretNameOf(server: string, name: string): string {
  return `${server}.${name}`.toLowerCase().replace(/[^a-z0-9._-]+/g, '-').slice(0, 128)
}

function object(value: unknown): Record<string, unknown> | undefined {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : undefined
}

// uncommented takes comments and commas before a closing bracket out of JSON, and leaves texts alone.
function uncommented(text: string): string {
  return text.replace(/^\ufeff/, '')
    .replace(/("(?:\\.|[^"\\])*")|\/\/[^\n]*|\/\*[\s\S]*?\*\//g, (_all, string?: string) => string ?? '')
    .replace(/("(?:\\.|[^"\\])*")|,(\s*[}\]])/g, (_all, string?: string, end?: string) => string ?? end ?? '')
}
