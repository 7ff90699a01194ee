/** A refusal of the server (RFC 9457), or of the way to it. */
export class Problem extends Error {
  readonly status: number
  readonly code: string
  readonly title: string
  readonly detail: string
  readonly retryable: boolean
  readonly retryAfter?: number
  readonly details: Record<string, unknown>
  readonly requestId?: string
  readonly invocationId?: string

  constructor(status: number, body: unknown, requestId?: string) {
    const p = (typeof body === 'object' && body !== null ? body : {}) as Record<string, unknown>
    const text = (name: string) => (typeof p[name] === 'string' ? p[name] : '')
    super(text('detail') || text('title') || `HTTP ${status}`)
    this.status = status
    this.code = text('code')
    this.title = text('title') || (status === 0 ? 'Toolkeep does not answer' : `HTTP ${status}`)
    this.detail = text('detail')
    this.retryable = p.retryable === true || status === 0
    this.retryAfter = typeof p.retry_after_s === 'number' ? p.retry_after_s : undefined
    this.details = (typeof p.details === 'object' && p.details !== null ? p.details : {}) as Record<string, unknown>
    this.requestId = requestId || undefined
    this.invocationId = text('invocation_id') || undefined
  }

  /** Faults of the input: where (a JSON Pointer) and what. */
  get faults(): { pointer: string; message: string }[] {
    const list = this.details.errors
    if (!Array.isArray(list)) return []
    return list.map((one: Record<string, unknown>) => ({ pointer: String(one.pointer ?? ''), message: String(one.message ?? '') }))
  }
}

/** The error as a Problem. */
export function problem(err: unknown): Problem {
  if (err instanceof Problem) return err
  return new Problem(0, { title: 'The page failed', detail: err instanceof Error ? err.message : String(err) })
}
