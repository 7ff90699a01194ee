import createClient from 'openapi-fetch'
import { parse } from './exact'
import { Problem } from './problem'
import type { paths } from './schema'

/** Where Toolkeep is: the address of the page's base, which a proxy may have moved. */
export const base = new URL('.', document.baseURI)

/** The address of a path of the server, such as "api/v1/tools". */
export function address(path: string): string {
  return new URL(path.replace(/^\//, ''), base).href
}

const csrfName = `toolkeep.csrf:${base.pathname}`

/** The token without which the server does not believe the session's cookie. It is worth nothing without the cookie. */
export const csrf = {
  get: () => localStorage.getItem(csrfName) ?? '',
  set: (token: string) => localStorage.setItem(csrfName, token),
  clear: () => localStorage.removeItem(csrfName),
}

let loggedOut = () => {}

/** Says what to do when the server no longer knows who asks. */
export function onLoggedOut(then: () => void) { loggedOut = then }

/** Sends a request as the session. Throws a Problem where the server refuses or is away. */
export async function send(request: Request): Promise<Response> {
  const token = csrf.get()
  if (token && !request.headers.has('Authorization')) request.headers.set('X-Toolkeep-CSRF', token)
  let response: Response
  try {
    response = await fetch(request)
  } catch (err) {
    if (request.signal.aborted || (err instanceof DOMException && err.name === 'AbortError')) throw err
    throw new Problem(0, { title: 'Toolkeep does not answer', detail: 'The server cannot be reached. It may have stopped, or the network is away.' })
  }
  if (response.ok) return response
  const refused = await problemOf(response)
  // A call may lack a capability token (E3211) while the session holds.
  if (refused.status === 401 && refused.code !== 'E3211' && !request.headers.has('Authorization')) loggedOut()
  throw refused
}

async function problemOf(response: Response): Promise<Problem> {
  let body: unknown
  try {
    body = parse(await response.text())
  } catch {
    body = {}
  }
  return new Problem(response.status, body, response.headers.get('X-Request-ID') ?? undefined)
}

// exactly gives the answer's JSON with its numbers as they were written.
async function exactly(request: Request): Promise<Response> {
  const response = await send(request)
  const raw = response.status === 204 ? null : await response.text()
  // With a length the client calls json() and does not parse by itself.
  const headers = new Headers(response.headers)
  headers.set('Content-Length', String(raw?.length ?? 0))
  const read = new Response(raw, { status: response.status, headers })
  read.json = () => Promise.resolve(raw ? parse(raw) : undefined)
  return read
}

/** The server's routes, with types of its own OpenAPI document. Refusals are thrown as Problems. */
export const api = createClient<paths>({ baseUrl: base.href.replace(/\/$/, ''), fetch: exactly })

/** The answer's body: `await must(api.GET('/api/v1/tools', {params: {query}}))`. */
export async function must<T>(answer: Promise<{ data?: T }>): Promise<T> {
  return (await answer).data as T
}

/** Fetches bytes, such as an attachment's. */
export async function bytes(path: string, signal?: AbortSignal): Promise<Blob> {
  const response = await send(new Request(address(path), { signal }))
  return response.blob()
}
