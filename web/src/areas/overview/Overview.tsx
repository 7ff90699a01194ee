import { useQuery } from '@tanstack/react-query'
import { useMemo, type ReactNode } from 'react'
import { Link } from 'wouter'
import { api, must } from '../../core/api'
import { choice, useFilters } from '../../core/filters'
import { compact, duration, number, percent, usd } from '../../core/format'
import { Select } from '../../parts/Field'
import { Page } from '../../parts/Page'
import { Empty, States } from '../../parts/States'
import { Text } from '../../parts/Text'
import { Time } from '../../parts/Time'
import { Wide } from '../system/Wide'
import { Chart } from './Chart'
import { costs, latencies, rates, seconds, share, type Overview as Answer } from './model'
import { tabs } from './tabs'
import './overview.css'

const spec = { window: choice('1h', '5m', '15m', '6h') }

/** How calls went lately, on the node that answers. */
export default function Overview() {
  const [filters, set] = useFilters(spec)
  const query = useQuery({ queryKey: ['overview', filters.window], queryFn: ({ signal }) => must(api.GET('/api/v1/overview', { params: { query: { window: filters.window } }, signal })), refetchInterval: 5000 })
  return (
    <Page title="Overview" tabs={tabs} actions={
      <Select label="Window" hideLabel value={filters.window} onChange={(window) => set({ window: window as typeof filters.window })}
        options={[{ value: '5m', label: 'The last 5 minutes' }, { value: '15m', label: 'The last 15 minutes' }, { value: '1h', label: 'The last hour' }, { value: '6h', label: 'The last 6 hours' }]} />
    }>
      <States query={query}>{(o) => <Whole o={o} />}</States>
    </Page>
  )
}

function Whole({ o }: { o: Answer }) {
  const at = useMemo(() => seconds(o.points), [o])
  const series = useMemo(() => ({ rates: rates(o), latencies: latencies(o), costs: costs(o) }), [o])
  const t = o.totals
  return (
    <>
      <dl className="overview-tiles">
        <Tile name="Calls" href="/calls">{compact(t.calls)}</Tile>
        <Tile name="Succeeded">{t.calls > 0 ? percent(share(t.succeeded, t.calls)) : '–'}</Tile>
        <Tile name="95 in 100 within">{t.calls > 0 ? duration(t.p95_ms) : '–'}</Tile>
        <Tile name="From the cache">{t.calls > 0 ? percent(share(t.cache_hits, t.calls)) : '–'}</Tile>
        <Tile name="Cost">{usd(t.cost_usd)}</Tile>
        <Tile name="Running now" href="/queue?state=running">{number(o.running)}</Tile>
        <Tile name="Queued now" href="/queue?state=queued">{number(o.queued)}</Tile>
        <Tile name="Wait for a person" href="/approvals">{number(o.pending_approvals)}</Tile>
      </dl>
      {t.calls === 0 && <Empty title="No calls in this time" action={<Link className="button" href="/tools">Call a tool</Link>}>The charts fill as tools are called.</Empty>}
      <div className="overview-charts">
        <Chart title="Calls a minute" at={at} series={series.rates} format={shortNumber} />
        <Chart title="Time of a call" at={at} series={series.latencies} format={duration} />
        <Chart title="Cost" at={at} series={series.costs} format={usd} />
      </div>
      <Codes o={o} />
      <p className="soft">Of the node <Text most={120}>{o.node}</Text>, from its memory: it knows what it did since <Time at={o.since} full />.</p>
    </>
  )
}

const shortNumber = (n: number) => (n < 10 ? number(Math.round(n * 10) / 10) : compact(n))

function Tile({ name, href, children }: { name: string; href?: string; children: ReactNode }) {
  return <div className="card"><dt className="soft">{href ? <Link href={href}>{name}</Link> : name}</dt><dd>{children}</dd></div>
}

function Codes({ o }: { o: Answer }) {
  if (o.codes.length === 0) return null
  const most = Math.max(...o.codes.map((c) => c.count))
  return (
    <section className="stack">
      <h2>Errors by code</h2>
      <Wide label="Errors by code">
        <thead><tr><th scope="col">Code</th><th scope="col">Name</th><th scope="col" className="end">Calls</th><th scope="col"><span className="sr">Share</span></th></tr></thead>
        <tbody>
          {o.codes.map((c) => (
            <tr key={c.error_code}>
              <td>{/^E[0-9]+$/.test(c.error_code) ? <Link href={`/calls?error_code=${c.error_code}`}><code>{c.error_code}</code></Link> : <Text most={40}>{c.error_code}</Text>}</td>
              <td><Text most={80}>{c.name.replaceAll('_', ' ')}</Text></td><td className="end">{number(c.count)}</td>
              <td aria-hidden="true"><span className="overview-bar" style={{ width: `${Math.max(1, (100 * c.count) / most)}%` }} /></td>
            </tr>
          ))}
        </tbody>
      </Wide>
    </section>
  )
}
