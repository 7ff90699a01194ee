import { useCallback, useEffect, useRef, useState } from 'react'
import { announce } from '../../core/announce'
import { parse } from '../../core/exact'
import { Problem, problem } from '../../core/problem'
import { askSession } from '../../core/session'
import { stream } from '../../core/stream'
import { ended, nothing, release, stateWords, take, type Call, type Event, type Live } from './model'

export type Link = 'opening' | 'open' | 'lost' | { refused: Problem }

/** Why a stream ended, as its last event says. Where that is the session's end, the login comes. */
export function endOf(data: string): Problem {
  const body = parse(data)
  const refused = new Problem(Number((body as { status?: number }).status) || 500, body)
  if (refused.status === 401) askSession().catch(() => {})
  return refused
}

/**
 * Follows calls as they happen, those that the query string selects. What comes is taken in ten times a second; hold
 * says whether new calls wait. The stream begins again where name changes. onOpen is told when what happens is told from
 * then on, and again after each break, in which something may have been missed.
 */
export function useLive(name: string, query: string, hold: boolean, listed: (id: string) => boolean, onOpen: (again: boolean) => void) {
  const [live, setLive] = useState<Live>(nothing)
  const [link, setLink] = useState<Link>('opening')
  const [again, setAgain] = useState(0)
  const latest = useRef({ hold, listed, onOpen })
  latest.current = { hold, listed, onOpen }

  useEffect(() => {
    setLive(nothing)
    setLink('opening')
    const abort = new AbortController()
    let batch: Event[] = []
    let timer = 0
    let announced = 0
    let opens = 0
    const flush = () => {
      timer = 0
      const events = batch
      batch = []
      setLive((now) => take(now, events, latest.current.hold, latest.current.listed))
      const last = events.findLast((e) => e.type === 'call' && ended(e.call.state))
      if (!latest.current.hold && last?.type === 'call' && Date.now() - announced > 5000) {
        announced = Date.now()
        announce(`${last.call.tool_id}: ${stateWords[last.call.state]?.word ?? last.call.state}`)
      }
    }
    const refuse = (refused: Problem) => {
      setLink({ refused })
      latest.current.onOpen(false)
    }
    stream(`api/v1/invocations/events${query === '' ? '' : `?${query}`}`, {
      signal: abort.signal,
      onState: setLink,
      onEvent: ({ type, data }) => {
        if (type === 'open') latest.current.onOpen(opens++ > 0)
        else if (type === 'gap') batch.push({ type, missed: Number((parse(data) as { missed?: number }).missed) || 0 })
        else if (type === 'started' || type === 'state' || type === 'progress' || type === 'ended') batch.push({ type: 'call', call: parse(data) as Call })
        else if (type === 'error') {
          const refused = endOf(data)
          refuse(refused)
          // A stream ends when the session was idle at its beginning for too long; one that holds still begins another.
          if (refused.status === 401) askSession().then(() => { timer = window.setTimeout(() => setAgain((n) => n + 1), 1000) }, () => {})
          return 'stop'
        }
        if (batch.length > 0) timer ||= window.setTimeout(flush, 100)
      },
    }).catch((err: unknown) => { if (!abort.signal.aborted) refuse(problem(err)) })
    return () => { abort.abort(); clearTimeout(timer) }
  }, [name, query, again])

  return { live, link, showWaiting: useCallback(() => setLive(release), []) }
}
