import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { useLocation } from 'wouter'
import { api, must } from '../../core/api'
import { age, bytes, number } from '../../core/format'
import { may, session } from '../../core/session'
import { Badge } from '../../parts/Badge'
import { Button } from '../../parts/Button'
import { Confirm } from '../../parts/Dialog'
import { Json } from '../../parts/Json'
import { Page } from '../../parts/Page'
import { States } from '../../parts/States'
import { Text } from '../../parts/Text'
import { Time } from '../../parts/Time'
import { toast } from '../../parts/Toast'
import { Definitions } from './Definitions'
import { ServerBadge, type Server } from './Servers'
import { Wide } from '../system/Wide'
import './servers.css'

/** One MCP server: what it does, what it offers against what is pinned, and its log. */
export default function ServerPage({ name }: { name: string }) {
  const [path] = useLocation()
  const queries = useQueryClient()
  const query = useQuery({ queryKey: ['servers', name], queryFn: () => must(api.GET('/api/v1/servers/{name}', { params: { path: { name } } })), refetchInterval: 3000 })
  const here = `/servers/${encodeURIComponent(name)}`
  const view = path.endsWith('/definitions') ? 'definitions' : path.endsWith('/log') ? 'log' : 'state'
  const review = query.data ? query.data.held + (query.data.pending?.length ?? 0) : 0
  const [restarts, setRestarts] = useState(false)
  return (
    <Page title={name} badges={query.data && <><ServerBadge state={query.data.state} />{review > 0 && <Badge tone="warn">{number(review)} to review</Badge>}</>}
      tabs={[{ href: here, label: 'State' }, { href: `${here}/definitions`, label: 'Definitions', count: review || undefined }, { href: `${here}/log`, label: 'Log' }]}
      actions={may('system:operate') && <Button onClick={() => setRestarts(true)}>Restart</Button>}>
      <Confirm title={`Restart ${name}?`} action="Restart" open={restarts} onClose={() => setRestarts(false)} onConfirm={async () => {
        await must(api.POST('/api/v1/servers/{name}/restart', { params: { path: { name } } }))
        toast(`${name} is restarted`)
        void queries.invalidateQueries({ queryKey: ['servers'] })
      }}>
        <p>Its sessions end on every node, with the calls in them, and its failures are forgotten. The next call starts it.</p>
      </Confirm>
      {view === 'definitions' ? <Definitions name={name} /> : view === 'log' ? <Log name={name} /> : <States query={query}>{(server) => <State server={server} />}</States>}
    </Page>
  )
}

function State({ server: s }: { server: Server }) {
  return (
    <div className="columns">
      <div className="stack">
        {s.last_error && <section className="banner bad"><strong>Last error</strong> <Text>{s.last_error}</Text> <Time at={s.last_error_at} /></section>}
        {s.stale && <section className="banner warn"><strong>Its definitions are old</strong> <Text>{s.stale}</Text></section>}
        <section className="card">
          <dl className="facts">
            <dt>Over</dt><dd>{s.transport}{s.protocol_version && <>, MCP {s.protocol_version}</>}</dd>
            <dt>Running since</dt><dd><Time at={s.since} /></dd>
            {s.retry_at && <><dt>Starts again</dt><dd>{age(s.retry_at)}</dd></>}
            <dt>Process</dt><dd>{s.pid ?? '–'}</dd>
            <dt>Memory</dt><dd>{s.rss_bytes ? bytes(s.rss_bytes) : '–'}</dd>
            <dt>Sessions</dt><dd>{number(s.sessions)}, {number(s.in_use)} in use</dd>
            <dt>Sessions lost</dt><dd>{number(s.lost)}</dd>
            <dt>Tools offered</dt><dd>{number(s.tools)}</dd>
            <dt>For</dt><dd>{s.owner ? <>the tenant <Text>{s.owner}</Text></> : 'all tenants'}</dd>
            <dt title="messages that it sent without being asked">Unasked messages</dt><dd>{number(s.stray)}</dd>
            <dt title="requests of the server to its client">Requests refused</dt><dd>{number(s.refused)}</dd>
            <dt title="for callers that were too slow">Notifications dropped</dt><dd>{number(s.dropped)}</dd>
          </dl>
        </section>
        {s.nodes && s.nodes.length > 1 && <Nodes server={s} />}
      </div>
      <section className="stack"><h2>Its definition</h2><Json value={s.spec} label="Definition of the server" /></section>
    </div>
  )
}

function Nodes({ server }: { server: Server }) {
  return (
    <section className="stack">
      <h2>On each node</h2>
      <Wide label="On each node">
        <thead><tr><th scope="col">Node</th><th scope="col">State</th><th scope="col" className="end">Process</th><th scope="col" className="end">Sessions</th><th scope="col">Since</th><th scope="col">Definition of</th></tr></thead>
        <tbody>
          {server.nodes!.map((n) => (
            <tr key={n.node}>
              <td><Text>{n.node}</Text>{n.self && <span className="soft"> (answers)</span>}</td><td><ServerBadge state={n.state} /></td>
              <td className="end">{n.pid ?? '–'}</td><td className="end">{number(n.sessions)}</td><td><Time at={n.started_at} /></td><td><Time at={n.definition_at} full /></td>
            </tr>
          ))}
        </tbody>
      </Wide>
    </section>
  )
}

function Log({ name }: { name: string }) {
  const [every, setEvery] = useState(true)
  const query = useQuery({ queryKey: ['servers', name, 'log'], queryFn: () => must(api.GET('/api/v1/servers/{name}/logs', { params: { path: { name } } })), refetchInterval: every ? 2000 : false })
  return (
    <div className="stack">
      <div className="row-of"><Button aria-pressed={!every} onClick={() => setEvery(!every)}>{every ? 'Pause' : 'Go on'}</Button><span className="soft">The latest 256 KiB of its standard error and of what happened to its sessions, newest last. Secrets are taken out.</span></div>
      <States query={query} empty={(said) => said.log === '' && <p className="soft">It has written nothing since {session().node || 'the node'} started.</p>}>{(said) => <Tail text={said.log} />}</States>
    </div>
  )
}

const tail = 500

// Tail shows the last lines, and all of them when asked.
function Tail({ text }: { text: string }) {
  const [all, setAll] = useState(false)
  const lines = text.replace(/\n$/, '').split('\n')
  const shown = all ? lines : lines.slice(-tail)
  return (
    <>
      {shown.length < lines.length && <div><Button tone="quiet" onClick={() => setAll(true)}>{number(lines.length - shown.length)} earlier lines</Button></div>}
      <pre className="servers-log" tabIndex={0} role="region" aria-label="Log">{/* oxlint-disable-line jsx-a11y/no-noninteractive-tabindex */}
        {shown.map((line, i) => <div key={lines.length - shown.length + i}><Text most={2000} mono>{line}</Text></div>)}
      </pre>
    </>
  )
}
