import type { UseQueryResult } from '@tanstack/react-query'
import { useEffect, useState, type ReactNode } from 'react'
import { problem, type Problem } from '../core/problem'
import { Button } from './Button'
import { Icon } from './Icon'
import { Text } from './Text'

/** What a query is: loading, refused, empty, or there. Data that is old is shown with a word that it is. */
export function States<T>({ query, empty, children }: {
  query: Pick<UseQueryResult<T>, 'data' | 'error' | 'refetch' | 'isFetching' | 'failureReason'>
  /** What to show where there is nothing, or a function of the data that returns it. */
  empty?: ReactNode | ((data: T) => ReactNode)
  children: (data: T) => ReactNode
}) {
  const { data, error } = query
  if (data === undefined) {
    if (error) return <ProblemView problem={problem(error)} retry={() => query.refetch()} />
    return <Skeleton waits={query.failureReason ? problem(query.failureReason) : undefined} />
  }
  const nothing = typeof empty === 'function' ? empty(data) : empty
  return (
    <>
      {error && <p className="banner warn" role="status"><Icon name="warn" /> This is not the latest: {problem(error).detail || problem(error).title} <Button tone="quiet" onClick={() => query.refetch()}>Try again</Button></p>}
      {nothing || children(data)}
    </>
  )
}

/** Grey lines after a moment of waiting, never at once. */
export function Skeleton({ lines = 5, waits }: { lines?: number; waits?: Problem }) {
  const [shown, setShown] = useState(false)
  useEffect(() => {
    const timer = setTimeout(() => setShown(true), 150)
    return () => clearTimeout(timer)
  }, [])
  return (
    <div className="skeleton" aria-busy="true">
      {waits ? <p role="status">{waits.title}. It is asked again in a moment.</p> : <span className="sr">Loading</span>}
      {shown && Array.from({ length: lines }, (_, i) => <div key={i} className="bone" />)}
    </div>
  )
}

/** There is nothing: why, and what to do. */
export function Empty({ title, children, action }: { title: string; children?: ReactNode; action?: ReactNode }) {
  return <div className="empty"><h2>{title}</h2>{children && <p>{children}</p>}{action}</div>
}

/** A refusal of the server: what is wrong, where, what to do. */
export function ProblemView({ problem: p, retry }: { problem: Problem; retry?: () => void }) {
  const forbidden = p.status === 403
  return (
    <div className={`problem ${forbidden ? 'warn' : 'bad'}`} role="alert">
      <h2><Icon name={forbidden ? 'warn' : 'cross'} /> {forbidden ? 'You may not see this' : p.title}</h2>
      {p.detail && <p><Text>{p.detail}</Text></p>}
      {forbidden && <p>Ask an administrator of Toolkeep for a role that has the permission.</p>}
      {p.faults.length > 0 && <ul>{p.faults.map((f, i) => <li key={i}><code>{f.pointer || '/'}</code> <Text>{f.message}</Text></li>)}</ul>}
      <p className="soft">{p.code && <>Code <code>{p.code}</code>. </>}{p.requestId && <>Request <code>{p.requestId}</code>. </>}{p.retryAfter !== undefined && <>It may be asked again in {p.retryAfter} s.</>}</p>
      {retry && (p.retryable || p.status >= 500) && <Button onClick={retry}>Try again</Button>}
    </div>
  )
}
