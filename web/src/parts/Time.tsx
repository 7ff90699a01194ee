import { useEffect, useState } from 'react'
import { age, time, utc } from '../core/format'

/** How long ago or until then; the day and time in its title. */
export function Time({ at, full }: { at: string | undefined; full?: boolean }) {
  const [, tick] = useState(0)
  useEffect(() => {
    if (full) return
    const timer = setInterval(() => tick((n) => n + 1), 15_000)
    return () => clearInterval(timer)
  }, [full])
  if (!at || Number.isNaN(Date.parse(at))) return <span className="soft">–</span>
  return <time dateTime={at} title={`${time(at)} · ${utc(at)}`}>{full ? time(at) : age(at)}</time>
}
