import { address, send } from './api'
import { Problem } from './problem'
import { Reader, type Event } from './sse'

interface Options {
  /** What to do with an event. Returning 'stop' ends the stream. */
  onEvent: (event: Event) => 'stop' | void
  /** The stream is there, or it is lost and comes back in some seconds. */
  onState?: (state: 'open' | 'lost') => void
  signal: AbortSignal
}

/**
 * Follows a stream of server-sent events until the signal, a refusal (thrown as a Problem), the server's 204, or an
 * onEvent that says 'stop'. A connection that breaks is made again, from the last event on. It uses fetch, since an
 * EventSource cannot send the session's header.
 */
export async function stream(path: string, { onEvent, onState, signal }: Options): Promise<void> {
  const reader = { id: '', retry: undefined as number | undefined }
  for (let failures = 0; !signal.aborted;) {
    try {
      const headers: Record<string, string> = { Accept: 'text/event-stream' }
      if (reader.id) headers['Last-Event-ID'] = reader.id
      const response = await send(new Request(address(path), { headers, signal, cache: 'no-store' }))
      if (response.status === 204 || !response.body) return
      onState?.('open')
      const events = new Reader()
      events.id = reader.id
      const text = response.body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array<ArrayBuffer>>).getReader()
      for (;;) {
        const { value, done } = await text.read()
        if (done) break
        failures = 0
        for (const event of events.read(value)) {
          reader.id = event.id
          if (onEvent(event) === 'stop') {
            await text.cancel()
            return
          }
        }
        reader.retry = events.retry
      }
    } catch (err) {
      if (signal.aborted) return
      if (err instanceof Problem && !err.retryable) throw err
      if (err instanceof Problem && err.retryAfter) reader.retry = err.retryAfter * 1000
    }
    failures++
    onState?.('lost')
    await pause(Math.min(30_000, Math.max(reader.retry ?? 1000, 500 * 2 ** Math.min(failures, 6))), signal)
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const timer = setTimeout(done, ms)
    signal.addEventListener('abort', () => { clearTimeout(timer); done() }, { once: true })
  })
}
