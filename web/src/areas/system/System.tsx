import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { api, must } from '../../core/api'
import { bytes, count, duration, number, percent } from '../../core/format'
import { Badge } from '../../parts/Badge'
import { Button } from '../../parts/Button'
import { Confirm } from '../../parts/Dialog'
import { Json } from '../../parts/Json'
import { Page } from '../../parts/Page'
import { States } from '../../parts/States'
import { Text } from '../../parts/Text'
import { Time } from '../../parts/Time'
import { toast } from '../../parts/Toast'
import { Wide } from './Wide'
import './system.css'

/** The nodes that share the store, and what each keeps in memory. For operators of the tenant default. */
export default function System() {
  return (
    <Page title="System">
      <Nodes />
      <Caches />
    </Page>
  )
}

function Nodes() {
  const query = useQuery({ queryKey: ['nodes'], queryFn: () => must(api.GET('/api/v1/admin/nodes')), refetchInterval: 3000 })
  return (
    <section className="stack">
      <h2>Nodes</h2>
      <States query={query}>{(said) => <>
        {said.age_ms > 15_000 && <p className="banner warn">The store does not answer; this is {duration(said.age_ms)} old.</p>}
        <div className="cards">
          {said.nodes.map((n) => (
            <article key={n.name} className="card stack" aria-label={n.name}>
              <div className="row-of"><h3 className="grow"><Text most={120}>{n.name}</Text></h3>{n.self && <Badge tone="info">answers</Badge>}{n.leads.length > 0 && <Badge tone="ok">leads</Badge>}</div>
              <dl className="facts">
                <dt>Version</dt><dd><Text most={80}>{n.version}</Text></dd>
                <dt>Started</dt><dd><Time at={n.started_at} /></dd>
                <dt>Last beat</dt><dd><Time at={n.seen_at} /></dd>
                {n.url && <><dt>Reached at</dt><dd><Text mono most={200}>{n.url}</Text></dd></>}
                {n.leads.length > 0 && <><dt>Does for all</dt><dd><Text>{n.leads.join(', ')}</Text></dd></>}
              </dl>
              <details><summary>What nodes compare</summary><Json value={n.facts} label={`Facts of ${n.name}`} /></details>
            </article>
          ))}
        </div>
      </>}</States>
    </section>
  )
}

function Caches() {
  const queries = useQueryClient()
  const [asks, setAsks] = useState(false)
  const query = useQuery({ queryKey: ['caches'], queryFn: ({ signal }) => must(api.GET('/api/v1/admin/caches', { signal })), refetchInterval: 3000 })
  return (
    <section className="stack">
      <div className="row-of"><h2 className="grow">Caches</h2><Button onClick={() => setAsks(true)}>Drop the tenant’s</Button></div>
      <States query={query}>{(said) => <>
        <Wide label="Caches">
          <thead><tr><th scope="col">Cache</th><th scope="col" className="end">Kept</th><th scope="col" className="end">Memory</th><th scope="col" className="end">At most</th><th scope="col" className="end">Found</th><th scope="col" className="end">Share found</th><th scope="col" className="end">Pushed out</th></tr></thead>
          <tbody>
            {said.caches.map((c) => (
              <tr key={c.cache}>
                <td>{c.cache}</td><td className="end">{number(c.entries)}</td><td className="end">{bytes(c.bytes)}</td><td className="end">{c.most_bytes > 0 ? bytes(c.most_bytes) : '–'}</td>
                <td className="end">{number(c.hits)} of {number(c.hits + c.misses)}</td><td className="end">{c.hits + c.misses > 0 ? percent(c.hits / (c.hits + c.misses)) : '–'}</td><td className="end">{c.evicted === undefined ? '–' : number(c.evicted)}</td>
              </tr>
            ))}
          </tbody>
        </Wide>
        <p className="soft">Of the node {said.node}, for all tenants.</p>
      </>}</States>
      <Confirm title="Drop what is cached?" action="Drop" open={asks} onClose={() => setAsks(false)} onConfirm={async () => {
        const said = await must(api.DELETE('/api/v1/tools/admin/cache/invalidate', { body: { scope: 'all' } }))
        toast(`${count(said.invalidated, 'entry', 'entries')} dropped`)
        await queries.invalidateQueries({ queryKey: ['caches'] })
      }}><p>Answers of searches and results of tools of your tenant are made again when they are asked for. This is never needed after a change.</p></Confirm>
    </section>
  )
}
