import { useQuery } from '@tanstack/react-query'
import { useEffect, useRef, useState } from 'react'
import { api, must } from '../../core/api'
import { count } from '../../core/format'
import { problem, type Problem } from '../../core/problem'
import type { components } from '../../core/schema'
import { Badge } from '../../parts/Badge'
import { Button } from '../../parts/Button'
import { Check } from '../../parts/Field'
import { Page } from '../../parts/Page'
import { Empty, ProblemView, States } from '../../parts/States'
import { Text } from '../../parts/Text'
import { Time } from '../../parts/Time'
import { scrolls } from '../../parts/scrolls'
import { tabs } from './wire'

type Report = components['schemas']['Report']
interface Sum { checkpoints: number; entries: number; open: number; intact: boolean; faults: NonNullable<Report['faults']>; more: boolean; done: boolean }
const none: Sum = { checkpoints: 0, entries: 0, open: 0, intact: true, faults: [], more: false, done: false }

/** Whether what was recorded is as it was recorded, by its hashes and the signed checkpoints. */
export default function Chain() {
  const keys = useQuery({ queryKey: ['audit', 'keys'], queryFn: () => must(api.GET('/api/v1/audit/keys')) })
  const [archive, setArchive] = useState(false)
  const [sum, setSum] = useState<Sum>()
  const [failed, setFailed] = useState<Problem>()
  const running = useRef<AbortController>(undefined)
  const [busy, setBusy] = useState(false)
  useEffect(() => () => running.current?.abort(), [])
  async function verify() {
    running.current?.abort()
    const stop = new AbortController()
    running.current = stop
    setBusy(true)
    setFailed(undefined)
    setSum(none)
    let all = none
    try {
      for (let cursor: string | undefined; ;) {
        const part = await must(api.GET('/api/v1/audit/verify', { params: { query: { archive: archive || undefined, cursor } }, signal: stop.signal }))
        cursor = part.next || undefined
        all = { checkpoints: all.checkpoints + part.checkpoints, entries: all.entries + part.entries, open: part.open ?? 0, intact: all.intact && part.intact,
          faults: [...all.faults, ...(part.faults ?? [])].slice(0, 100), more: all.more || !!part.more_faults, done: !cursor }
        setSum(all)
        if (!cursor) break
      }
    } catch (err) {
      if (!stop.signal.aborted) setFailed(problem(err))
    } finally {
      setBusy(false)
    }
  }
  return (
    <Page title="Audit chain" tabs={tabs} lead="Each entry has the hash of the one before it, and checkpoints of them are signed: a changed, removed or added entry shows.">
      <div className="row-of">
        <Button tone="primary" busy={busy} onClick={verify}>Verify</Button>
        {busy && <Button onClick={() => running.current?.abort()}>Stop</Button>}
        <Check label="The archive, and not what the store has" checked={archive} onChange={setArchive} disabled={busy} />
      </div>
      {failed && <ProblemView problem={failed} />}
      {sum && (
        <section className="card stack" aria-label="Result" role="status">
          <div className="row-of">
            {sum.done ? (sum.intact ? <Badge tone="ok">intact</Badge> : <Badge tone="bad">not intact</Badge>) : busy ? <Badge icon="wait">verifying</Badge> : <Badge>stopped</Badge>}
            <span>{count(sum.entries, 'entry', 'entries')} and {count(sum.checkpoints, 'checkpoint')} {sum.done ? 'were' : 'so far'} verified.{sum.open > 0 && ` ${count(sum.open, 'entry', 'entries')} since the last checkpoint ${sum.open === 1 ? 'is' : 'are'} not signed yet.`}</span>
          </div>
          {sum.faults.length > 0 && <ul>{sum.faults.map((fault, i) => <li key={i}><Text>{Object.values(fault as object).filter((v) => v !== '' && v !== 0).map(String).join(' · ')}</Text></li>)}</ul>}
          {sum.more && <p>There are more faults.</p>}
        </section>
      )}
      <section className="stack" aria-label="Keys">
        <h2>Keys that sign checkpoints</h2>
        <States query={keys} empty={(data) => (data.keys ?? []).length === 0 && <Empty title="No key yet">The first checkpoint makes one.</Empty>}>
          {(data) => (
            <div {...scrolls('Keys')}><table className="table"><thead><tr><th scope="col">Key</th><th scope="col">Since</th><th scope="col">Public (Ed25519)</th></tr></thead>
              <tbody>{(data.keys ?? []).map((key) => <tr key={key.id}><td><Text mono>{key.id}</Text></td><td><Time at={key.created_at} /></td><td><Text mono>{key.public}</Text></td></tr>)}</tbody></table></div>
          )}
        </States>
      </section>
    </Page>
  )
}
