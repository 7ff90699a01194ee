import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { useDeferredValue, useEffect, useRef, useState, type ReactNode } from 'react'
import { Link } from 'wouter'
import { announce } from '../../core/announce'
import { useFilters } from '../../core/filters'
import { count, number } from '../../core/format'
import { useShortcuts } from '../../core/keys'
import { usePages } from '../../core/pages'
import { problem } from '../../core/problem'
import { may } from '../../core/session'
import { Badge } from '../../parts/Badge'
import { Button } from '../../parts/Button'
import { Check, Field, Select } from '../../parts/Field'
import { Page } from '../../parts/Page'
import { Rows, type Column } from '../../parts/Rows'
import { Empty, ProblemView, States } from '../../parts/States'
import { Text } from '../../parts/Text'
import { AuthBadge, Effects, Risk, State } from '../tool/badges'
import { flat } from '../tool/flat'
import { facets, scores, setOf, spec, toolsPage, type Asked, type Facet, type Row } from './ask'
import { Legend, Score } from './Score'
import { pieces, sum } from './score'
import { ofList } from './wire'
import './catalogue.css'

const toolHref = (row: { tool_id: string }) => `/tools/${encodeURIComponent(row.tool_id)}`

/** All tools that one may see: listed, filtered, or found as agents find them. */
export default function Catalogue() {
  const [filters, set] = useFilters(spec)
  const [words, setWords] = useState(filters.q)
  const box = useRef<HTMLDivElement>(null)
  const wrote = useRef(filters.q)
  // What is typed becomes the address after a moment; an address that changes otherwise becomes what is typed.
  useEffect(() => {
    if (words === filters.q) return
    const timer = setTimeout(() => { wrote.current = words; set({ q: words }) }, 250)
    return () => clearTimeout(timer)
  }, [words, filters.q, set])
  useEffect(() => {
    if (filters.q === wrote.current) return
    wrote.current = filters.q
    setWords(filters.q)
  }, [filters.q])
  useShortcuts([{ keys: '/', does: 'Search for tools', run: () => box.current?.querySelector('input')?.focus() }])
  return (
    <Page title="Catalogue" lead="The tools that you may see. A search finds what an agent with your rights would find.">
      <div ref={box} className="catalogue-search">
        <Field label="What should the tool do?" type="search" value={words} onChange={setWords} placeholder="order a book" />
      </div>
      <FilterBar filters={filters} set={set} />
      {filters.q.trim() === '' ? <All filters={filters} set={set} /> : <Found filters={filters} set={set} />}
    </Page>
  )
}

type Set = (change: Partial<Asked>) => void
const none: Partial<Asked> = { category: '', namespace: '', tag: [], source: '', state: '', risk: '', side_effects: '', auth_state: '', auth_scope: '', callable: false, held: false, include_deprecated: false }

const selects: [name: 'category' | 'namespace' | 'source' | 'state' | 'risk' | 'side_effects' | 'auth_state' | 'auth_scope', label: string, always?: string[]][] = [
  ['category', 'Category'], ['namespace', 'Namespace'], ['source', 'Source'], ['state', 'State', ['active', 'deprecated']], ['risk', 'Risk', ['low', 'medium', 'high', 'critical']], ['side_effects', 'Effects', ['none', 'reads', 'writes']],
  ['auth_state', 'Secrets', ['none', 'ready', 'missing', 'expired', 'unreadable']], ['auth_scope', 'Whose secret', ['user', 'workspace', 'organisation', 'server']],
]

function FilterBar({ filters, set }: { filters: Asked; set: Set }) {
  const asked = useDeferredValue(filters)
  const query = useQuery({ queryKey: ['tools', 'facets', asked], queryFn: ({ signal }) => facets(asked, signal), placeholderData: keepPreviousData, staleTime: 10_000 })
  const active = setOf(filters)
  return (
    <details className="catalogue-filters" open={active.length > 0 || undefined}>
      <summary>Filters{active.length > 0 && ` (${active.length})`}</summary>
      <div className="filters">
        {selects.filter(([name]) => ofList.has(name)).map(([name, label, always]) => {
          const now = filters[name]
          if (!query.data?.[name] && !always) return <Field key={name} label={label} value={now} onChange={(value) => set({ [name]: value.trim() })} placeholder="any" />
          const values: Facet[] = query.data?.[name] ?? always?.map((value) => ({ value, count: -1 })) ?? []
          const options = [{ value: '', label: 'any' }, ...values.map((f) => ({ value: f.value, label: f.count < 0 ? f.value : `${flat(f.value, 60)} (${number(f.count)})` }))]
          if (now !== '' && !values.some((f) => f.value === now)) options.push({ value: now, label: flat(now, 60) })
          return <Select key={name} label={label} options={options} value={now} onChange={(value) => set({ [name]: value })} />
        })}
        {ofList.has('sort') && <Select label="Order" value={filters.q ? '' : filters.sort} disabled={filters.q !== ''} onChange={(sort) => set({ sort: sort as Asked['sort'] })}
          options={filters.q ? [{ value: '', label: 'best first' }] : [{ value: 'id', label: 'by name' }, { value: '-id', label: 'by name, Z first' }, { value: '-published', label: 'newest first' }, { value: 'published', label: 'oldest first' }]} />}
        {ofList.has('callable') && <Check label="Only what I may call" checked={filters.callable} onChange={(callable) => set({ callable })} />}
        {ofList.has('held') && <Check label="Held for review" checked={filters.held} onChange={(held) => set({ held })} />}
        <Check label="Deprecated too" checked={filters.include_deprecated} onChange={(include_deprecated) => set({ include_deprecated })} />
        {filters.tag.map((tag) => <Button key={tag} tone="quiet" icon="cross" onClick={() => set({ tag: filters.tag.filter((t) => t !== tag) })}>tag <Text most={60}>{tag}</Text></Button>)}
        {active.length > 0 && <Button tone="quiet" onClick={() => set(none)}>Clear filters</Button>}
      </div>
      {query.error && <p className="error">{problem(query.error).detail}</p>}
    </details>
  )
}

// A row's cells are made once: while one scrolls, React passes over those that are the same.
function kept(make: (row: Row) => ReactNode): (row: Row) => ReactNode {
  const made = new WeakMap<Row, ReactNode>()
  return (row) => {
    if (!made.has(row)) made.set(row, make(row))
    return made.get(row)
  }
}

const columns: Column<Row>[] = [
  { title: 'Tool', width: 'minmax(12rem, 2fr)', cell: kept((t) => <Text most={200}>{t.tool_id}</Text>) },
  { title: 'What it does', width: 'minmax(7rem, 3fr)', phone: false, cell: kept((t) => <Text most={160}>{t.short_description || t.description}</Text>) },
  { title: 'Category', width: '6.500rem', phone: false, cell: kept((t) => <Text most={60}>{t.category}</Text>) },
  { title: 'Source', width: '4.500rem', phone: false, cell: kept((t) => <Text most={40}>{t.source}</Text>) },
  { title: 'State', width: '6rem', cell: kept((t) => (t.held ? <Badge tone="bad">held</Badge> : t.callable ? <State state={t.state} /> : <Badge icon="dash">not yours</Badge>)) },
  { title: 'Effects', width: '6.500rem', phone: false, cell: kept((t) => <Effects effect={t.side_effects} />) },
  { title: 'Risk', width: '6.500rem', phone: false, cell: kept((t) => <Risk risk={t.risk} />) },
  { title: 'Secrets', width: '11rem', phone: false, cell: kept((t) => <AuthBadge auth={t.authentication} />) },
]

function All({ filters, set }: { filters: Asked; set: Set }) {
  const list = usePages<Row>(['tools', filters], (page, size, signal) => toolsPage(filters, page, size, signal))
  useAnnounced(list.first.data ? list.count : undefined)
  return (
    <States query={list.first} empty={list.count === 0 && <Nothing filters={filters} set={set} />}>
      {() => (
        <div className="stack">
          <p className="soft">{count(list.count, 'tool')}</p>
          <Rows label="tools" columns={columns} count={list.count} row={list.row} onRange={list.onRange} rowKey={(t) => t.tool_id} href={toolHref} />
        </div>
      )}
    </States>
  )
}

const step = 30

function Found({ filters, set }: { filters: Asked; set: Set }) {
  const [most, setMost] = useState(step)
  const rows = useQuery({ queryKey: ['tools', 'found', filters], queryFn: ({ signal }) => toolsPage(filters, 1, 200, signal), placeholderData: keepPreviousData, staleTime: 10_000 })
  const parts = useQuery({ queryKey: ['tools', 'scores', filters.q, filters.category], queryFn: ({ signal }) => scores(filters.q, filters.category, signal), placeholderData: keepPreviousData, staleTime: 10_000 })
  const known = parts.data
  const full = known ? Math.max(0, ...[...known.of.values()].map((s) => sum(pieces(s.parts, known.weights)))) : 0
  useAnnounced(rows.isPlaceholderData ? undefined : rows.data?.total)
  return (
    <States query={rows} empty={(data) => data.total === 0 && <Nothing filters={filters} set={set} />}>
      {(data) => (
        <section className="stack" aria-label="What was found" aria-busy={rows.isPlaceholderData}>
          {known?.degraded && <p className="banner warn"><Text most={300}>{known.degraded}</Text></p>}
          {known?.cut && <p className="banner warn">The question has more than 16,000 characters; the rest was not read.</p>}
          <div className="row-of"><p className="soft">{count(data.total, 'tool')}{data.total === 200 && ', the best of all that match'}, best first</p>{full > 0 && <Legend />}</div>
          {parts.error && <ProblemView problem={problem(parts.error)} />}
          <ol className="found">
            {data.rows.slice(0, most).map((row) => {
              const s = known?.of.get(row.tool_id)
              return (
                <li key={row.tool_id}>
                  <div className="found-head">
                    <Link href={toolHref(row)}><Text most={200}>{row.tool_id}</Text></Link>
                    {row.held ? <Badge tone="bad">held</Badge> : row.state !== 'active' && <State state={row.state} />}
                    {!row.callable && <Badge icon="dash">not yours to call</Badge>}
                    <Effects effect={row.side_effects} />{row.risk !== 'low' && <Risk risk={row.risk} />}<AuthBadge auth={row.authentication} />
                  </div>
                  <p className="soft"><Text most={200}>{row.short_description || row.description}</Text></p>
                  {s && known && <Score parts={s.parts} weights={known.weights} score={s.score} full={full} />}
                  {s && s.why.length > 0 && <p className="soft found-why">matched: {s.why.slice(0, 12).map((w, i) => <code key={i}><Text most={60}>{w}</Text></code>)}</p>}
                </li>
              )
            })}
          </ol>
          {data.rows.length > most && <Button onClick={() => setMost(most + step)}>{data.rows.length - most} more</Button>}
        </section>
      )}
    </States>
  )
}

function Nothing({ filters, set }: { filters: Asked; set: Set }) {
  if (setOf(filters).length > 0) return <Empty title="No tool is left by these filters" action={<Button onClick={() => set(none)}>Clear filters</Button>}>{filters.q && 'Without them the search may find some.'}</Empty>
  if (filters.q) return <Empty title="No tool fits these words" action={<Button onClick={() => set({ q: '' })}>Show all tools</Button>}>Say what should be done, in other or fewer words: “send a mail”, “list orders”.</Empty>
  return (
    <Empty title="There are no tools yet">
      {may('catalog:publish') ? <>Import an OpenAPI document or an MCP server (<Link href="/import">Import</Link>), or start Toolkeep with <code>--examples</code>.</> : 'Ask an administrator of Toolkeep to publish tools, or for a role that shows them to you.'}
    </Empty>
  )
}

// useAnnounced tells screen readers how many there are now.
function useAnnounced(n: number | undefined) {
  useEffect(() => { if (n !== undefined) announce(count(n, 'tool')) }, [n])
}
