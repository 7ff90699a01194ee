import { useQuery } from '@tanstack/react-query'
import { Link } from 'wouter'
import { api, must } from '../../core/api'
import { bytes, number } from '../../core/format'
import type { components } from '../../core/schema'
import { may } from '../../core/session'
import { Badge, type Tone } from '../../parts/Badge'
import { Page } from '../../parts/Page'
import { Rows, type Column } from '../../parts/Rows'
import { Empty, States } from '../../parts/States'
import { Text } from '../../parts/Text'

export type Server = components['schemas']['ServerState']

/** The MCP servers behind Toolkeep. */
export default function Servers() {
  const query = useQuery({ queryKey: ['servers'], queryFn: () => must(api.GET('/api/v1/servers')), refetchInterval: 3000 })
  return (
    <Page title="Servers" lead="MCP servers whose tools are in the catalogue. What they offer is pinned: a tool whose definition changes is held until a person accepts it."
      actions={may('servers:admin') && <Link className="button" href="/import">Put a server behind</Link>}>
      <States query={query} empty={(all) => all.servers.length === 0 && (
        <Empty title="No server yet" action={<code>toolkeep import mcp notebook -- examples/notebook/notebook.py</code>}>A server is a local program or an address that speaks MCP. This command puts one behind:</Empty>
      )}>
        {(all) => <Rows label="servers" columns={columns} count={all.servers.length} row={(i) => all.servers[i]} rowKey={(s) => s.name} href={(s) => `/servers/${encodeURIComponent(s.name)}`} />}
      </States>
    </Page>
  )
}

const columns: Column<Server>[] = [
  { title: 'Server', width: 'minmax(0, 2fr)', cell: (s) => <Text most={64}>{s.name}</Text> },
  { title: 'State', width: '8rem', cell: (s) => <ServerBadge state={s.state} /> },
  { title: 'To review', width: '7rem', cell: (s) => <Review server={s} /> },
  { title: 'Over', width: '4rem', phone: false, cell: (s) => s.transport },
  { title: 'Tools', width: '4rem', align: 'end', phone: false, cell: (s) => number(s.tools) },
  { title: 'Sessions', width: '5rem', align: 'end', phone: false, cell: (s) => `${number(s.in_use)} / ${number(s.sessions)}` },
  { title: 'Memory', width: '5rem', align: 'end', phone: false, cell: (s) => (s.rss_bytes ? bytes(s.rss_bytes) : '–') },
  { title: 'Last error', width: 'minmax(0, 2fr)', phone: false, cell: (s) => <Text most={200}>{s.last_error}</Text> },
]

function Review({ server: s }: { server: Server }) {
  const waiting = s.held + (s.pending?.length ?? 0)
  return waiting === 0 ? <span className="soft">–</span> : <Badge tone="warn">{number(waiting)} {waiting === 1 ? 'tool' : 'tools'}</Badge>
}

const looks: Record<string, { tone: Tone; word: string }> = {
  idle: { tone: 'soft', word: 'Idle' }, starting: { tone: 'info', word: 'Starting' }, ready: { tone: 'ok', word: 'Ready' },
  backoff: { tone: 'warn', word: 'Waits to start' }, failed: { tone: 'bad', word: 'Paused' }, login_required: { tone: 'warn', word: 'Wants a login' },
  disabled: { tone: 'soft', word: 'Disabled' }, unknown: { tone: 'soft', word: 'Not known' },
}

/** The state of a server as a badge. */
export function ServerBadge({ state }: { state: string }) {
  const look = looks[state] ?? { tone: 'soft' as const, word: state }
  return <Badge tone={look.tone}>{look.word}</Badge>
}
