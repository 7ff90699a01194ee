import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { Link, Redirect } from 'wouter'
import { api, must } from '../../core/api'
import { session } from '../../core/session'
import { Icon } from '../../parts/Icon'
import { Page } from '../../parts/Page'
import { States } from '../../parts/States'
import { allowed } from '../../shell/Frame'
import { routes } from '../../routes'

const there = (path: string) => routes.some((route) => route.path === path && allowed(route))

/** The first page: three steps for a new user. Once a client made a call, it leads to where work is done. */
export default function Greet() {
  const calls = useQuery({
    queryKey: ['greet'],
    queryFn: () => must(api.GET('/api/v1/invocations', { params: { query: { page_size: 200 } } })),
    staleTime: 10_000,
  })
  const tools = useQuery({ queryKey: ['greet', 'tools'], queryFn: () => must(api.GET('/api/v1/tools', { params: { query: { page_size: 1 } } })) })
  const home = ['/overview', '/tools', '/approvals', '/calls'].find(there)
  if (calls.data?.invocations?.some((call) => call.face !== 'rest') && home) return <Redirect to={home} replace />
  return (
    <Page title={`Welcome, ${session().subject}`} lead="Toolkeep stands between agents and tools: it finds the tool, checks the call, makes it, and keeps what happened. Three steps show how.">
      <States query={calls}>
        {() => (
          <ol className="steps">
            <Step n={1} title="See a tool" done={false}>
              <p>{tools.data ? <>You may see {tools.data.total_count} tools. </> : null}Search them as an agent does, and see why each was found.</p>
              {there('/tools') ? <Link className="button primary" href="/tools">Open the catalogue</Link> : <code>toolkeep search "what you want to do"</code>}
            </Step>
            <Step n={2} title="Call it" done={(calls.data?.invocations?.length ?? 0) > 0}>
              <p>A tool's page has a form made from its schema. A dry run shows what each of the twelve steps would decide; the call does it.</p>
              {there('/tools') ? <Link className="button" href="/tools/std.echo">Try std.echo</Link> : <code>toolkeep call std.echo text=hello</code>}
            </Step>
            <Step n={3} title="Connect a client" done={false}>
              <p>Claude, an IDE, or your own program: each gets a key of its own and calls the same tools.</p>
              {there('/connect') ? <Link className="button" href="/connect">Connect</Link> : <code>toolkeep connect</code>}
            </Step>
          </ol>
        )}
      </States>
      {home && <p className="soft">This page goes away once a client made a call. <Link href={home}>Go on without it</Link>.</p>}
    </Page>
  )
}

function Step({ n, title, done, children }: { n: number; title: string; done: boolean; children: ReactNode }) {
  return <li><span className="n">{done ? <Icon name="check" /> : n}</span><h2>{title}{done && <span className="sr"> (done)</span>}</h2>{children}</li>
}
