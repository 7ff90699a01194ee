import { QueryClient } from '@tanstack/react-query'
import { address, csrf, onLoggedOut, send } from './api'
import { Problem } from './problem'
import type { components } from './schema'

/** Who is logged in, as GET /api/v1/session says. */
export type Session = components['schemas']['Session']

/** What the console asked the server for, kept for a moment. It is dropped when another logs in. */
export const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 2000,
      refetchOnWindowFocus: true,
      // Refusals that say when to come again are asked again, twice; the page says so meanwhile.
      retry: (failures, err) => failures < 2 && err instanceof Problem && err.retryable && (err.status === 429 || err.status === 503 || err.status === 0),
      retryDelay: (failures, err) => (err instanceof Problem && err.retryAfter ? Math.min(err.retryAfter, 60) * 1000 : 1000 * 2 ** failures),
    },
    mutations: { retry: false },
  },
})

let current: Session | null | undefined // undefined: not asked yet; null: not logged in
const listeners = new Set<() => void>()

function become(session: Session | null) {
  if (current?.subject !== session?.subject || current?.tenant_id !== session?.tenant_id || current?.key_id !== session?.key_id) queries.clear()
  current = session
  for (const tell of listeners) tell()
}

export const sessionStore = {
  get: () => current,
  subscribe(tell: () => void) { listeners.add(tell); return () => { listeners.delete(tell) } },
}

/** Whether the one who is logged in has the permission. The server decides all the same. */
export function may(permission: string): boolean {
  return !!current && (current.permissions.includes('*') || current.permissions.includes(permission))
}

/** Whether the server has a part, such as "policies". A part it does not speak of is there. */
export function has(part: string): boolean {
  return current?.parts?.[part] !== false
}

/** The session as it is now. It is there on all pages but the login. */
export function session(): Session {
  if (!current) throw new Error('not logged in')
  return current
}

/** Asks the server who is logged in. */
export async function askSession(): Promise<void> {
  try {
    become((await (await send(new Request(address('api/v1/session')))).json()) as Session)
  } catch (err) {
    if (err instanceof Problem && (err.status === 401 || err.status === 403)) become(null)
    else throw err
  }
}

async function begin(request: Request): Promise<void> {
  const made = (await (await send(request)).json()) as { csrf_token: string; session: Session }
  csrf.set(made.csrf_token)
  become(made.session)
}

/** Logs in with an API key, which is sent this once and kept nowhere. */
export const logInByKey = (key: string) =>
  begin(new Request(address('api/v1/session'), { method: 'POST', headers: { Authorization: `Bearer ${key}` } }))

/** Logs in with the token of a login link. */
export const logInByLink = (token: string) =>
  begin(new Request(address('api/v1/session/redeem'), { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ token }) }))

export async function logOut(): Promise<void> {
  try {
    await send(new Request(address('api/v1/session'), { method: 'DELETE' }))
  } finally {
    csrf.clear()
    become(null)
  }
}

onLoggedOut(() => { if (current) { csrf.clear(); become(null) } })
// Another tab logged in, out, or as another.
window.addEventListener('storage', (event) => { if (event.key?.startsWith('toolkeep.csrf')) askSession().catch(() => {}) })
