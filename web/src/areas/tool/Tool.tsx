import { useQuery } from '@tanstack/react-query'
import { useLocation, useSearch } from 'wouter'
import { api, must } from '../../core/api'
import { Badge } from '../../parts/Badge'
import { Copy } from '../../parts/Copy'
import { Select } from '../../parts/Field'
import { Page } from '../../parts/Page'
import { Empty, States } from '../../parts/States'
import { Text } from '../../parts/Text'
import { About } from './About'
import { AuthBadge, AuthNote, Effects, Risk, State } from './badges'
import { Call } from './Call'
import { Examples } from './Examples'
import { Related } from './Related'
import { Usage } from './Usage'
import { Versions } from './Versions'
import { manifestOf, type ToolAnswer } from './wire'
import './tool.css'

const views = [['', 'Call'], ['about', 'About'], ['examples', 'Examples'], ['versions', 'Versions'], ['usage', 'Usage'], ['related', 'Related']] as const

/** One version of a tool: called, described, compared. */
export default function Tool({ id: escaped, view = '' }: { id: string; view?: string }) {
  const id = unescape(escaped)
  const search = new URLSearchParams(useSearch())
  const version = search.get('version') ?? ''
  const from = search.get('call') ?? ''
  const [path, navigate] = useLocation()
  const tool = useQuery({
    queryKey: ['tool', id, version],
    queryFn: ({ signal }) => must(api.GET('/api/v1/tools/{tool_id}', { params: { path: { tool_id: id }, query: { version: version || undefined } }, signal })),
    staleTime: 10_000,
  })
  const versions = useQuery({
    queryKey: ['tool', id, 'versions'],
    queryFn: ({ signal }) => must(api.GET('/api/v1/tools/{tool_id}/versions', { params: { path: { tool_id: id } }, signal })),
    staleTime: 10_000,
  })
  const query = version === '' ? '' : `?version=${encodeURIComponent(version)}`
  const at = `/tools/${encodeURIComponent(id)}`
  const data = tool.data
  const manifest = data && manifestOf(data)
  const several = (versions.data?.versions.length ?? 0) > 1 || version !== ''
  const known = versions.data?.versions.map((v) => v.version) ?? []
  return (
    <Page
      title={manifest?.tool_name || id}
      lead={manifest && <span className="row-of"><code><Text most={200}>{id}</Text></code><Copy text={id} label="Copy id" /></span>}
      badges={data && <>
        <State state={data.lifecycle.state} />
        {data.lifecycle.held && <Badge tone="bad">held</Badge>}
        {!data.callable && <Badge icon="dash">not yours to call</Badge>}
        <Effects effect={manifest?.side_effects} /><Risk risk={manifest?.risk} />
        {manifest?.requires_approval && <Badge tone="warn" icon="wait">asks a person first</Badge>}
        <AuthBadge auth={data.authentication} />
      </>}
      actions={several && <Select hideLabel label="Version" value={version} onChange={(v) => navigate(v === '' ? path : `${path}?version=${encodeURIComponent(v)}`)}
        options={[{ value: '', label: data && version === '' ? `latest (${data.version})` : 'latest' }, ...[...new Set([...known, ...(version ? [version] : [])])].map((v) => ({ value: v, label: v }))]} />}
      tabs={views.map(([name, label]) => ({ href: `${at}${name === '' ? '' : `/${name}`}${query}`, label, ...(name === 'versions' && several ? { count: known.length } : {}) }))}
    >
      <States query={tool}>
        {(t) => (
          <>
            <Standing tool={t} />
            <View key={`${t.tool_id} ${t.version}`} view={view} tool={t} from={from} exact={version !== ''} />
          </>
        )}
      </States>
    </Page>
  )
}

function unescape(id: string): string {
  try { return decodeURIComponent(id) } catch { return id }
}

function View({ view, tool, from, exact }: { view: string; tool: ToolAnswer; from: string; exact: boolean }) {
  switch (view) {
    case '': return <Call tool={tool} from={from} exact={exact} />
    case 'about': return <About tool={tool} />
    case 'examples': return <Examples tool={tool} />
    case 'versions': return <Versions tool={tool} />
    case 'usage': return <Usage tool={tool} />
    case 'related': return <Related tool={tool} />
  }
  return <Empty title="There is no such view of a tool">The tabs above have all of them.</Empty>
}

// Standing says what keeps calls from working, and what to do about it.
function Standing({ tool }: { tool: ToolAnswer }) {
  const life = tool.lifecycle
  return (
    <>
      {life.held && <p className="banner bad">This version waits for review and is refused (E3012): <Text most={600}>{life.held.why}</Text></p>}
      {(life.state === 'deprecated' || life.state === 'sunset') && <p className="banner warn">This version is {life.state}{life.successor && <>; move to {life.successor}</>}.{life.reason && <> <Text most={400}>{life.reason}</Text></>}</p>}
      {(life.state === 'blocked' || life.state === 'removed') && <p className="banner bad">This version is {life.state} and cannot be called.{life.reason && <> <Text most={400}>{life.reason}</Text></>}</p>}
      {!tool.callable && <p className="banner info">Your roles show you this tool and do not let you call it. A dry run says which rule decides.</p>}
      <AuthNote auth={tool.authentication} tool={tool.tool_id} />
    </>
  )
}
