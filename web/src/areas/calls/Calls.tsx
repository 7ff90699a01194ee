import { useCallback, useEffect, useMemo, useRef, useState } from 'react'
import { api, must } from '../../core/api'
import { useFilters } from '../../core/filters'
import { count, duration, number, timeOfDay, time } from '../../core/format'
import { usePages } from '../../core/pages'
import { may } from '../../core/session'
import { Badge } from '../../parts/Badge'
import { Button } from '../../parts/Button'
import { Field, Select } from '../../parts/Field'
import { Page } from '../../parts/Page'
import { Rows, type Column } from '../../parts/Rows'
import { Empty, ProblemView, States } from '../../parts/States'
import { Text } from '../../parts/Text'
import { filtered, query, spec, stateChoices, type CallFilters } from './filters'
import { anchorOf, ended, newest, stateWords, type Call } from './model'
import { useLive, type Link } from './useLive'
import './calls.css'

/** All calls, newest first, as they happen. */
export default function Calls() {
  const [filters, set] = useFilters(spec)
  const [again, setAgain] = useState(0)
  const [paused, setPaused] = useState(false)
  const frame = useRef<HTMLDivElement>(null)
  const [away, setAway] = useState(false) // the reader is not at the top, or is among the rows
  const asked = useMemo(() => ({ ...query(filters, Date.now()), again }), [filters, again])

  // The list stays as it was when its first page was read; what comes later is above it.
  const [opened] = useState(() => Date.now())
  const key = ['calls', opened, asked] as const
  const name = JSON.stringify(key)
  const anchor = useRef<{ name: string; until?: string; listed: Set<string>; opened: () => void; open: Promise<void> }>(undefined)
  if (anchor.current?.name !== name) {
    // It is read after the events have begun, so that no call falls between the two; if they do not begin, a little later.
    let opened = () => {}
    const open = new Promise<void>((done) => { opened = done; setTimeout(done, 1000) })
    anchor.current = { name, listed: new Set(), opened, open }
  }
  const pages = usePages(key, async (page, size, signal) => {
    const mine = anchor.current!
    await mine.open
    const got = await must(api.GET('/api/v1/invocations', { params: { query: { ...asked.list, ...(mine.until ? { until: mine.until } : {}), page, page_size: size } }, signal }))
    if (page === 1) mine.until ??= anchorOf(got.invocations[0])
    for (const row of got.invocations) mine.listed.add(row.invocation_id)
    return { rows: got.invocations, total: got.total_count, least: got.total_is_least }
  })
  const [broke, setBroke] = useState('')
  const { live, link, showWaiting } = useLive(name, asked.events, paused || away, (id) => anchor.current!.listed.has(id), (later) => {
    if (later) setBroke(name)
    anchor.current!.opened()
  })
  const readAgain = () => setAgain(again + 1)

  const { shown } = live
  function row(index: number) {
    if (index < shown.length) return shown[index]
    const one = pages.row(index - shown.length)
    return one && newest(live, one)
  }
  const { onRange: see } = pages
  const onRange = useCallback((first: number, last: number) => {
    if (first > 0) setAway(true)
    else if (!document.activeElement?.closest('.timeline .row')) setAway(false)
    see(Math.max(0, first - shown.length), Math.max(0, last - shown.length))
  }, [see, shown.length])
  const total = shown.length + pages.count

  function pause() {
    if (paused) showWaiting()
    setPaused(!paused)
  }
  return (
    <Page title="Calls" lead={may('invocations:read') ? undefined : 'These are your own calls. Those of others need the permission invocations:read.'}
      badges={<LinkBadge link={link} paused={paused} />}
      actions={<>
        <Button icon={paused ? 'play' : undefined} aria-pressed={paused} onClick={pause}>{paused ? 'Go on' : 'Pause'}</Button>
        <Button onClick={readAgain}>Read again</Button>
      </>}>
      <Bar filters={filters} set={set} />
      {typeof link === 'object' && <ProblemView problem={link.refused} />}
      {broke === name && <p className="banner warn">The connection broke for a moment, and calls may be missing here. <Button tone="quiet" onClick={readAgain}>Read again to see them</Button></p>}
      {live.missed > 0 && <p className="banner warn">{count(live.missed, 'call')} came faster than they can be shown. <Button tone="quiet" onClick={readAgain}>Read again to see them</Button></p>}
      <States query={pages.first} empty={total === 0 && live.waiting.length === 0 && <None filters={filters} clear={() => set(clear)} />}>{() => (
        <div className="timeline" ref={frame} onFocus={(event) => { if (event.target.closest('.row')) setAway(true) }}>
          <div className="row-of">
            <span className="soft grow">{pages.least ? `${number(pages.count)} or more` : number(total)} {total === 1 ? 'call' : 'calls'}{pages.count >= 10_000 && '; filters narrow them'}{live.dropped > 0 && `; ${number(live.dropped)} of the new ones are shown after reading again`}</span>
            {live.waiting.length > 0 && <Button tone="primary" onClick={() => { showWaiting(); setAway(false); frame.current?.querySelector('.rows')?.scrollTo(0, 0) }}>{number(live.waiting.length)} new</Button>}
          </div>
 <Rows label="calls" columns={columns} count={total} row={row} rowKey={(c) => c.invocation_id} href={(c) => `/calls/${encodeURIComponent(c.invocation_id)}`} onRange={onRange} />
        </div>
      )}</States>
    </Page>
  )
}

const clear: CallFilters = { state: [], tool_id: '', agent_id: '', user_id: '', session_id: '', parent_invocation_id: '', error_code: '', face: '', within: '' }

const columns: Column<Call>[] = [
  { title: 'Tool', width: 'minmax(0, 2fr)', cell: (c) => <Text most={120}>{c.tool_id || '(not read)'}</Text> },
  { title: 'State', width: '9.500rem', cell: (c) => <State call={c} /> },
  { title: 'Caller', width: 'minmax(6rem, 1fr)', phone: false, cell: (c) => <Text most={80}>{c.user_id ? `${c.agent_id} for ${c.user_id}` : c.agent_id}</Text> },
  { title: 'What happened', width: 'minmax(8rem, 2fr)', phone: false, cell: (c) => <What call={c} /> },
  { title: 'By', width: '3.500rem', phone: false, cell: (c) => c.face ?? '' },
  { title: 'Took', width: '5rem', align: 'end', phone: false, cell: (c) => (ended(c.state) ? duration(c.duration_ms) : '') },
  { title: 'At', width: '5rem', align: 'end', phone: false, cell: (c) => c.created_at && <time dateTime={c.created_at} title={time(c.created_at)}>{timeOfDay(c.created_at)}</time> },
]

/** The state of a call as a badge. */
export function State({ call }: { call: Pick<Call, 'state'> }) {
  const look = stateWords[call.state] ?? { word: call.state, tone: 'soft' as const }
  return <Badge tone={look.tone} icon={call.state === 'running' ? 'play' : call.state === 'queued' || call.state === 'pending_approval' ? 'wait' : undefined}>{look.word}</Badge>
}

function What({ call: c }: { call: Call }) {
  if (c.error_code) return <><code>{c.error_code}</code> <Text most={160}>{c.message ?? c.error_name}</Text></>
  if (!ended(c.state) && c.progress) return <><Bar100 of={c.progress.fraction} /> <Text most={120}>{c.progress.message ?? c.progress.phase}</Text></>
  return <span className="soft">{[c.cache_hit ? 'from the cache' : '', c.attempts > 1 ? `${c.attempts} attempts` : ''].filter(Boolean).join(', ')}</span>
}

/** How far a call is. */
export function Bar100({ of }: { of: number }) {
  const percent = Math.round(Math.min(1, Math.max(0, of)) * 100)
  return <progress max={100} value={percent} aria-label="Progress">{percent} %</progress>
}

function LinkBadge({ link, paused }: { link: Link; paused: boolean }) {
  if (paused) return <Badge tone="soft" icon="wait">Paused</Badge>
  if (link === 'open') return <Badge tone="ok">Live</Badge>
  if (link === 'lost') return <Badge tone="warn">Connecting again</Badge>
  return link === 'opening' ? null : <Badge tone="bad">Not live</Badge>
}

function None({ filters, clear: clearAll }: { filters: CallFilters; clear: () => void }) {
  if (filtered(filters)) return <Empty title="No call matches" action={<Button onClick={clearAll}>Clear the filters</Button>}>Calls that match appear here as they happen.</Empty>
  return <Empty title="No calls yet">Call a tool on its page, or with “toolkeep call std.hash text=hello”. Calls appear here as they happen.</Empty>
}

function Bar({ filters, set }: { filters: CallFilters; set: (change: Partial<CallFilters>) => void }) {
  const states = filters.state.join()
  const known = stateChoices.some((c) => c.states.join() === states)
  const more = filters.user_id || filters.session_id || filters.parent_invocation_id || filters.face
  return (
    <search className="filters" aria-label="Filters of the calls">
      <Select label="State" value={states} onChange={(value) => set({ state: value === '' ? [] : value.split(',') })}
        options={[...stateChoices.map((c) => ({ value: c.states.join(), label: c.label })), ...(known ? [] : [{ value: states, label: filters.state.join(', ') }])]} />
      <Later label="Tool" value={filters.tool_id} onChange={(tool_id) => set({ tool_id })} />
      {may('invocations:read') && <Later label="Caller" value={filters.agent_id} onChange={(agent_id) => set({ agent_id })} />}
      <Later label="Error code" value={filters.error_code} form={/^(e[0-9]{4})?$/i} such="such as E3201" onChange={(error_code) => set({ error_code: error_code.toUpperCase() })} />
      <Select label="Within" value={filters.within} onChange={(within) => set({ within: within as CallFilters['within'] })}
        options={[{ value: '', label: 'All times' }, { value: '15m', label: '15 minutes' }, { value: '1h', label: 'An hour' }, { value: '24h', label: 'A day' }, { value: '7d', label: 'A week' }]} />
      <details open={more ? true : undefined}>
        <summary>More filters</summary>
        <div className="filters">
          <Select label="By" value={filters.face} onChange={(face) => set({ face: face as CallFilters['face'] })}
            options={[{ value: '', label: 'All ways' }, { value: 'rest', label: 'REST' }, { value: 'mcp', label: 'MCP' }, { value: 'grpc', label: 'gRPC' }, { value: 'cli', label: 'Command line' }, { value: 'child', label: 'Another call' }]} />
          <Later label="Person" value={filters.user_id} onChange={(user_id) => set({ user_id })} />
          <Later label="Session" value={filters.session_id} onChange={(session_id) => set({ session_id })} />
          <Later label="Made by the call" value={filters.parent_invocation_id} onChange={(parent_invocation_id) => set({ parent_invocation_id })} />
        </div>
      </details>
      {filtered(filters) && <Button tone="quiet" onClick={() => set(clear)}>Clear</Button>}
    </search>
  )
}

// Later is a filter that counts once the typing rests, and has its form.
function Later({ label, value, form, such, onChange }: { label: string; value: string; form?: RegExp; such?: string; onChange: (value: string) => void }) {
  const [typed, setTyped] = useState(value)
  const change = useRef(onChange)
  change.current = onChange
  const fits = !form || form.test(typed.trim())
  useEffect(() => setTyped(value), [value])
  useEffect(() => {
    if (!fits || typed.trim() === value) return
    const timer = setTimeout(() => change.current(typed.trim()), 400)
    return () => clearTimeout(timer)
  }, [typed, value, fits])
  return <Field label={label} type="search" value={typed} onChange={setTyped} description={fits ? undefined : such} onEnter={() => { if (fits) change.current(typed.trim()) }} />
}
