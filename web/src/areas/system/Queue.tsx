import { useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { api, must } from '../../core/api'
import { choice, useFilters } from '../../core/filters'
import { number } from '../../core/format'
import { usePages } from '../../core/pages'
import type { components } from '../../core/schema'
import { may, session } from '../../core/session'
import { Button } from '../../parts/Button'
import { Page } from '../../parts/Page'
import { Select } from '../../parts/Field'
import { Rows, type Column } from '../../parts/Rows'
import { Empty, States } from '../../parts/States'
import { Text } from '../../parts/Text'
import { Time } from '../../parts/Time'
import { CancelCall, RequeueCall } from '../calls/Call'
import { Bar100, State } from '../calls/Calls'
import { newest, type Call } from '../calls/model'
import { useLive } from '../calls/useLive'

const spec = { state: choice('', 'queued', 'running', 'pending_approval', 'input_required') }
const waiting: components['schemas']['InvocationAnswer']['state'][] = ['queued', 'running', 'pending_approval', 'input_required']

/** Calls that have not ended: what waits, for what, and how far it is. */
export default function Queue() {
  const [filters, set] = useFilters(spec)
  const queries = useQueryClient()
  const [asks, setAsks] = useState<{ id: string; what: 'cancel' | 'requeue' }>()
  const pages = usePages(['queue', filters.state], async (page, size, signal) => {
    const got = await must(api.GET('/api/v1/invocations', { params: { query: { state: filters.state === '' ? waiting : [filters.state], page, page_size: size } }, signal }))
    return { rows: got.invocations as Call[], total: got.total_count, least: got.total_is_least }
  }, { every: 2000 })
  // How far they are is told by the events alone.
  const { live } = useLive('queue', '', false, () => true, () => {})
  const row = (index: number) => {
    const one = pages.row(index)
    return one && newest(live, one)
  }
  const done = () => { void queries.invalidateQueries({ queryKey: ['queue'] }) }
  const columns: Column<Call>[] = [
    { title: 'Tool', width: 'minmax(0, 2fr)', cell: (c) => <Text most={120}>{c.tool_id}</Text> },
    { title: 'State', width: '10.500rem', cell: (c) => <State call={c} /> },
    { title: 'Caller', width: 'minmax(0, 1fr)', phone: false, cell: (c) => <Text most={80}>{c.agent_id}</Text> },
    { title: 'Progress', width: 'minmax(0, 1.500fr)', phone: false, cell: (c) => (c.progress ? <><Bar100 of={c.progress.fraction} /> <Text most={100}>{c.progress.message ?? c.progress.phase}</Text></> : <span className="soft">–</span>) },
    { title: 'Began', width: '6rem', phone: false, cell: (c) => <Time at={c.created_at} /> },
    { title: 'Action', width: '13rem', phone: false, cell: (c) => (
      <>
        {(may('invocations:cancel') || c.agent_id === session().subject) && <Button tone="quiet" onClick={() => setAsks({ id: c.invocation_id, what: 'cancel' })}>Cancel</Button>}
        {may('invocations:cancel') && (c.state === 'running' || c.state === 'queued') && <Button tone="quiet" onClick={() => setAsks({ id: c.invocation_id, what: 'requeue' })}>Queue again</Button>}
      </>
    ) },
  ]
  return (
    <Page title="Queue" lead="Calls that wait or run. One whose node was lost goes back to the queue by itself; queue it again here if that should be now.">
      <search className="filters" aria-label="Filters of the queue">
        <Select label="State" value={filters.state} onChange={(state) => set({ state: state as typeof filters.state })}
          options={[{ value: '', label: 'All that have not ended' }, { value: 'queued', label: 'Queued' }, { value: 'running', label: 'Running' }, { value: 'pending_approval', label: 'Wait for approval' }, { value: 'input_required', label: 'Ask their caller' }]} />
      </search>
      <States query={pages.first} empty={pages.count === 0 && <Empty title="Nothing waits">Asynchronous calls, and those that wait for a person, appear here.</Empty>}>{() => (
        <div className="stack">
          <span className="soft" role="status">{number(pages.count)}{pages.least && ' or more'} {pages.count === 1 ? 'call' : 'calls'}</span>
          <Rows label="waiting calls" columns={columns} count={pages.count} row={row} rowKey={(c) => c.invocation_id} href={(c) => `/calls/${encodeURIComponent(c.invocation_id)}`} onRange={pages.onRange} />
        </div>
      )}</States>
      <CancelCall id={asks?.id ?? ''} open={asks?.what === 'cancel'} onClose={() => setAsks(undefined)} done={done} />
      <RequeueCall id={asks?.id ?? ''} open={asks?.what === 'requeue'} onClose={() => setAsks(undefined)} done={done} />
    </Page>
  )
}
