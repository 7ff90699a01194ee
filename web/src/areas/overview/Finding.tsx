import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { api, must } from '../../core/api'
import { choice, useFilters } from '../../core/filters'
import { count, duration, number, percent } from '../../core/format'
import type { components } from '../../core/schema'
import { may } from '../../core/session'
import { Badge } from '../../parts/Badge'
import { Button } from '../../parts/Button'
import { Confirm } from '../../parts/Dialog'
import { Select } from '../../parts/Field'
import { Page } from '../../parts/Page'
import { Rows, type Column } from '../../parts/Rows'
import { Empty, States } from '../../parts/States'
import { Text } from '../../parts/Text'
import { Time } from '../../parts/Time'
import { toast } from '../../parts/Toast'
import { scrolls } from '../../parts/scrolls'
import { tabs } from './tabs'
import './overview.css'

type Group = components['schemas']['UsageGroup']
type Learning = components['schemas']['RankingLearning']

const spec = { by: choice('tool', 'user', 'strategy'), days: choice('7', '1', '30', '90') }

/** How tools are found and how they do, by day, and what search learned of it. */
export default function Finding() {
  const [f, set] = useFilters(spec)
  const query = useQuery({
    queryKey: ['finding', f.by, f.days],
    queryFn: () => must(api.GET('/api/v1/tools/admin/analytics', { params: { query: { groupBy: f.by, startDate: new Date(Date.now() - (Number(f.days) - 1) * 86_400_000).toISOString().slice(0, 10), limit: 1000 } } })),
  })
  return (
    <Page title="Finding tools" tabs={tabs}>
      <search className="filters" aria-label="Filters">
        <Select label="By" value={f.by} onChange={(by) => set({ by: by as typeof f.by })} options={[{ value: 'tool', label: 'Tool' }, { value: 'user', label: 'Caller' }, { value: 'strategy', label: 'Strategy of search' }]} />
        <Select label="Days" value={f.days} onChange={(days) => set({ days: days as typeof f.days })} options={[{ value: '1', label: 'Today' }, { value: '7', label: '7 days' }, { value: '30', label: '30 days' }, { value: '90', label: '90 days' }]} />
      </search>
      <States query={query}>{({ data }) => <>
        {data.groups.length === 0 ? <Empty title="Nothing was found or called in these days">Searches and calls are counted here by day, in UTC.</Empty> : <>
          <p className="soft">{count(data.total.retrievals, 'retrieval')}, after {percent(data.total.selectionRate)} of which a tool was called; {count(data.total.calls, 'call')}, {percent(data.total.successRate)} of which succeeded.{data.more > 0 && ` ${number(data.more)} more are not shown.`}{data.droppedEvents > 0 && ` ${count(data.droppedEvents, 'record')} could not be written.`}</p>
          <Rows label="what was found" columns={columns} count={data.groups.length} row={(i) => data.groups[i]} rowKey={(g) => g.key ?? ''} href={f.by === 'tool' ? (g) => `/tools/${encodeURIComponent(g.key ?? '')}` : f.by === 'user' ? (g) => `/calls?${new URLSearchParams({ agent_id: g.key ?? '' })}` : undefined} />
        </>}
        <Learned learning={data.ranking} />
      </>}</States>
    </Page>
  )
}

const columns: Column<Group>[] = [
  { title: 'Of', width: 'minmax(0, 2fr)', cell: (g) => <Text most={120}>{g.key}</Text> },
  { title: 'Offered', width: '5rem', align: 'end', cell: (g) => number(g.retrievals) },
  { title: 'Chosen', width: '5rem', align: 'end', phone: false, cell: (g) => (g.retrievals > 0 ? percent(g.selectionRate) : '–') },
  { title: 'Place', width: '4rem', align: 'end', phone: false, cell: (g) => (g.meanPosition > 0 ? number(Math.round(g.meanPosition * 10) / 10) : '–') },
  { title: 'Calls', width: '5rem', align: 'end', cell: (g) => number(g.calls) },
  { title: 'Succeeded', width: '6rem', align: 'end', phone: false, cell: (g) => (g.calls > 0 ? percent(g.successRate) : '–') },
  { title: 'On average', width: '6rem', align: 'end', phone: false, cell: (g) => (g.calls > 0 ? duration(g.avgExecutionTimeMs) : '–') },
  { title: '95 in 100', width: '6rem', align: 'end', phone: false, cell: (g) => (g.calls > 0 ? duration(g.p95ExecutionTimeMs) : '–') },
]

const modes: Record<Learning['mode'], string> = { on: 'Search uses what it learned, where it is better.', observe: 'Search learns and shows what it learned, and does not use it.', off: 'Search does not learn: the setting search.learning is off.' }

// Learned shows the weights of search before and after the newest learning.
function Learned({ learning: l }: { learning: Learning }) {
  const queries = useQueryClient()
  const [asks, setAsks] = useState<'learn' | 'reset'>()
  const changed = () => queries.invalidateQueries({ queryKey: ['finding'] })
  const names = Object.keys(l.after?.weights ?? l.before?.weights ?? l.weights ?? {})
  return (
    <section className="stack">
      <div className="row-of">
        <h2 className="grow">What search learned</h2>
        {may('system:operate') && l.mode !== 'off' && <Button onClick={() => setAsks('learn')}>Learn again</Button>}
        {may('system:operate') && l.weights && <Button tone="bad" onClick={() => setAsks('reset')}>Reset</Button>}
      </div>
      <p>{modes[l.mode]} {l.at ? <>It learned <Time at={l.at} /> from {count(l.lessons, 'search', 'searches')} with a choice, {number(l.heldOut)} of them kept to compare. <Badge tone={l.better ? 'ok' : 'soft'}>{l.better ? 'Better' : 'Not better'}</Badge> <Text most={500}>{l.verdict}</Text></> : 'It has not learned yet.'}</p>
      {names.length > 0 && (
        <div {...scrolls('Weights')}>
          <table className="table overview-codes">
            <thead><tr><th scope="col">Weight</th><th scope="col" className="end">Before</th><th scope="col" className="end">Learned</th></tr></thead>
            <tbody>
              {names.map((name) => <tr key={name}><th scope="row">{name}</th><td className="end">{three(l.before?.weights[name])}</td><td className="end">{three((l.after?.weights ?? l.weights)?.[name])}</td></tr>)}
              {l.before && l.after && <>
                <tr><th scope="row">Order (1 is best)</th><td className="end">{three(l.before.ndcg)}</td><td className="end">{three(l.after.ndcg)}</td></tr>
                <tr><th scope="row">Surprise (0 is best)</th><td className="end">{three(l.before.logLoss)}</td><td className="end">{three(l.after.logLoss)}</td></tr>
              </>}
            </tbody>
          </table>
        </div>
      )}
      <Confirm title="Learn again?" action="Learn" open={asks === 'learn'} onClose={() => setAsks(undefined)} onConfirm={async () => {
        const said = await must(api.POST('/api/v1/tools/admin/weights'))
        toast(said.data.verdict || 'It learned', said.data.better ? 'ok' : 'info')
        await changed()
      }}><p>Weights are learned from the tools that were chosen after searches, and used if they are better.</p></Confirm>
      <Confirm title="Drop the learned weights?" action="Drop" tone="bad" open={asks === 'reset'} onClose={() => setAsks(undefined)} onConfirm={async () => {
        await must(api.DELETE('/api/v1/tools/admin/weights'))
        toast('Search uses the weights of the configuration')
        await changed()
      }}><p>Search uses the weights of the configuration until it learns again.</p></Confirm>
    </section>
  )
}

const three = (n: number | undefined) => (n === undefined ? '–' : n.toFixed(3))
