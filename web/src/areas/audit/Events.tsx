import { useInfiniteQuery } from '@tanstack/react-query'
import { useCallback, useDeferredValue } from 'react'
import { api, must } from '../../core/api'
import { choice, flag, text, useFilters } from '../../core/filters'
import { count, time, utc } from '../../core/format'
import type { components } from '../../core/schema'
import { Badge } from '../../parts/Badge'
import { Button } from '../../parts/Button'
import { Check, Field, Select } from '../../parts/Field'
import { Page } from '../../parts/Page'
import { Rows, usePhone } from '../../parts/Rows'
import { Empty, States } from '../../parts/States'
import { Text } from '../../parts/Text'
import { Time } from '../../parts/Time'
import { say, tabs, text as of, tone, types, type Entry } from './wire'

const spec = { type: text, decision: choice('', 'allowed', 'refused', 'failed'), agent_id: text, tool_id: text, since: text, until: text, archive: flag }
const wanted = 50
const most = 10

interface Part { events: Entry[]; next?: string; leftOut: components['schemas']['LeftOutSegment'][] }

// read gets the next entries. A page may have none and go on: it is read on until there are some, or for ten requests.
async function read(f: { type: string; decision: '' | 'allowed' | 'refused' | 'failed'; agent_id: string; tool_id: string; since: string; until: string; archive: boolean }, cursor: string | undefined, signal: AbortSignal): Promise<Part> {
  const part: Part = { events: [], leftOut: [], next: cursor }
  for (let i = 0; i < most && part.events.length < wanted; i++) {
    const data = await must(api.GET('/api/v1/audit/events', { params: { query: {
      type: f.type || undefined, decision: f.decision || undefined, agent_id: f.agent_id || undefined, tool_id: f.tool_id || undefined,
      since: instant(f.since), until: instant(f.until), archive: f.archive || undefined, cursor: part.next, page_size: wanted,
    } }, signal }))
    part.events.push(...(data.events ?? []))
    part.leftOut.push(...(data.left_out ?? []))
    part.next = data.next || undefined
    if (!part.next) break
  }
  return part
}

function instant(local: string): string | undefined {
  const at = local === '' ? NaN : Date.parse(local)
  return Number.isNaN(at) ? undefined : new Date(at).toISOString()
}

/** What was recorded, newest first. */
export default function Events() {
  const [f, set] = useFilters(spec)
  const phone = usePhone()
  const typed = useDeferredValue(f)
  const query = useInfiniteQuery({
    queryKey: ['audit', typed],
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam, signal }) => read(typed, pageParam, signal),
    getNextPageParam: (part) => part.next,
  })
  const rows = query.data?.pages.flatMap((part) => part.events) ?? []
  const leftOut = query.data?.pages.flatMap((part) => part.leftOut) ?? []
  const { fetchNextPage, hasNextPage, isFetchingNextPage } = query
  const onRange = useCallback((_first: number, last: number) => {
    if (hasNextPage && !isFetchingNextPage && rows.length > 0 && last >= rows.length - 5) void fetchNextPage()
  }, [hasNextPage, isFetchingNextPage, rows.length, fetchNextPage])
  const filtered = Object.entries(f).some(([name, value]) => name !== 'archive' && value !== '')
  return (
    <Page title="Audit" tabs={tabs} lead="Calls that ended, and what people and the system did. Each entry is chained to the one before it by its hash.">
      <div className="filters">
        <Select label="What" value={types.some(([end]) => end === f.type) || f.type === '' ? f.type : ''} onChange={(type) => set({ type })} options={[{ value: '', label: 'Everything' }, ...types.map(([value, label]) => ({ value, label: `${label} (${value})` }))]} />
        <Select label="Decision" value={f.decision} onChange={(decision) => set({ decision: decision as typeof f.decision })} options={[{ value: '', label: 'Any' }, { value: 'allowed', label: 'Allowed' }, { value: 'refused', label: 'Refused' }, { value: 'failed', label: 'Failed' }]} />
        <Field label="Agent" value={f.agent_id} onChange={(agent_id) => set({ agent_id })} />
        <Field label="Tool" value={f.tool_id} onChange={(tool_id) => set({ tool_id })} />
        <Field label="From" type="datetime-local" value={f.since} onChange={(since) => set({ since })} />
        <Field label="Until" type="datetime-local" value={f.until} onChange={(until) => set({ until })} />
        <Check label="Archive" checked={f.archive} onChange={(archive) => set({ archive })} />
        {filtered && <Button tone="quiet" onClick={() => set({ type: '', decision: '', agent_id: '', tool_id: '', since: '', until: '' })}>Clear</Button>}
      </div>
      {leftOut.length > 0 && <p className="banner warn">{count(leftOut.length, 'segment')} of the archive cannot be read and {leftOut.length === 1 ? 'is' : 'are'} left out: <Text most={300}>{leftOut.map((s) => s.segment).join(', ')}</Text></p>}
      <States query={query} empty={() => rows.length === 0 && !query.hasNextPage && (filtered
        ? <Empty title="Nothing fits these filters" action={<Button onClick={() => set({ type: '', decision: '', agent_id: '', tool_id: '', since: '', until: '' })}>Clear the filters</Button>} />
        : <Empty title="Nothing was recorded yet">The first call of a tool is the first entry.</Empty>)}>
        {() => (
          <>
            <p role="status" className="soft">{count(rows.length, 'entry', 'entries')}{query.hasNextPage ? ' so far' : ''}{isFetchingNextPage && ', reading on'}</p>
            {rows.length > 0 && (
              <Rows<Entry> label="audit entries" count={rows.length} row={(i) => rows[i]} onRange={onRange} rowKey={(e) => e.id} href={(e) => `/audit/${encodeURIComponent(e.id)}${f.archive ? '?archive=true' : ''}`}
                columns={[
                  { title: 'What', width: 'minmax(0, 1.6fr)', cell: (e) => say(e.type) },
                  { title: 'Who', width: 'minmax(0, 1fr)', cell: (e) => <Text most={100}>{of(e.data, 'agent_did', 'agent_id', 'subject', 'by')}</Text> },
                  { title: 'About', width: 'minmax(0, 1.2fr)', phone: false, cell: (e) => <Text most={120}>{of(e.data, 'tool_id', 'name', 'key_id', 'server') || e.subject}</Text> },
                  { title: 'Decision', width: '110px', phone: false, cell: (e) => { const d = of(e.data, 'decision'); return d ? <Badge tone={tone(d)}><Text most={20}>{d}</Text></Badge> : null } },
                  { title: 'Code', width: '70px', phone: false, cell: (e) => of(e.data, 'error_code') },
                  { title: 'When', width: phone ? '96px' : '170px', align: 'end', cell: (e) => phone ? <Time at={e.time} /> : <time dateTime={e.time} title={utc(e.time)}>{time(e.time)}</time> },
                ]} />
            )}
            {query.hasNextPage && <div><Button busy={isFetchingNextPage} onClick={() => void fetchNextPage()}>Read on</Button></div>}
          </>
        )}
      </States>
    </Page>
  )
}
