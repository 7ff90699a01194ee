import { useMemo, useState } from 'react'
import { Link } from 'wouter'
import { api, must } from '../../core/api'
import { count } from '../../core/format'
import { problem, type Problem } from '../../core/problem'
import type { components } from '../../core/schema'
import { may, queries } from '../../core/session'
import { Badge, type Tone } from '../../parts/Badge'
import { Button } from '../../parts/Button'
import { Field } from '../../parts/Field'
import { Icon } from '../../parts/Icon'
import { Json } from '../../parts/Json'
import { Page } from '../../parts/Page'
import { Empty, ProblemView } from '../../parts/States'
import { Text } from '../../parts/Text'
import { scrolls } from '../../parts/scrolls'
import { Drop } from './Drop'
import { sealed, secretNameOf, servers, type Found } from './read'
import { tabs } from './tabs'

type Plan = components['schemas']['ServerPlan']

/** Takes over the MCP servers of a client's file, one by one. */
export default function Servers() {
  const [text, setText] = useState('')
  const [fault, setFault] = useState('')
  const read = useMemo((): { list: Found[]; fault?: string } => {
    if (text.trim() === '') return { list: [] }
    try {
      return { list: servers(text) }
    } catch (err) {
      return { list: [], fault: err instanceof Error ? err.message : String(err) }
    }
  }, [text])
  return (
    <Page title="Import MCP servers" tabs={tabs()} lead="The file of a client (Claude, Cursor, Gemini CLI, VS Code, Zed) names the MCP servers that it starts. Behind Toolkeep they are started once for all, and their definitions are pinned.">
      <Drop label="A client's file" accept=".json,.jsonc" value={text} onChange={(to) => { setText(to); setFault('') }} onFault={setFault} />
      {(fault || read.fault) && <p className="banner bad" role="alert"><Icon name="warn" />{fault || read.fault}</p>}
      {text.trim() !== '' && !read.fault && read.list.length === 0 && <Empty title="The file names no server" />}
      {read.list.map((found) => <One key={`${found.name}/${JSON.stringify(found.definition)}`} found={found} />)}
    </Page>
  )
}

const tones: Record<string, Tone> = { new: 'ok', unchanged: 'soft', patch: 'info', minor: 'info', major: 'warn', gone: 'bad' }

function One({ found }: { found: Found }) {
  const [name, setName] = useState(found.name)
  const [kept, setKept] = useState(found.secrets.length === 0)
  const [plan, setPlan] = useState<{ plan: Plan; done: boolean }>()
  const [busy, setBusy] = useState(false)
  const [failed, setFailed] = useState<Problem>()
  const scope = may('secrets:admin') ? ('organisation' as const) : ('user' as const)
  const definition = sealed(found, (s) => `secret://${secretNameOf(name, s.name)}`)

  async function run(act: () => Promise<void>) {
    setBusy(true)
    setFailed(undefined)
    try {
      await act()
    } catch (err) {
      setFailed(problem(err))
    } finally {
      setBusy(false)
    }
  }
  const keep = () => run(async () => {
    for (const s of found.secrets) {
      await must(api.PUT('/api/v1/secrets/{name}', { params: { path: { name: secretNameOf(name, s.name) } }, body: { scope, value: s.value } }))
    }
    setKept(true)
  })
  const send = (dry: boolean) => run(async () => {
    const answer = await must(api.PUT('/api/v1/servers/{name}', { params: { path: { name }, query: { dry_run: dry || undefined } }, body: definition as never }))
    setPlan({ plan: answer, done: !dry })
    if (!dry) await queries.invalidateQueries()
  })
  return (
    <section className="card stack" aria-label={found.name}>
      <div className="row-of"><h2><Text most={64}>{found.name}</Text></h2>{plan?.done && <Badge tone="ok">imported</Badge>}</div>
      {found.fault ? <p className="banner warn"><Icon name="warn" /><span>It is left out: <Text>{found.fault}</Text></span></p> : (
        <>
          <Field label="Name" value={name} onChange={(to) => { setName(to); setPlan(undefined); setKept(found.secrets.length === 0) }} description="Also the namespace of its tools." />
          <Json value={definition} label={`Definition of ${name}`} />
          {!kept && (
            <div className="banner warn"><Icon name="warn" /><span className="grow">{found.secrets.map((s) => s.name).join(', ')} {found.secrets.length === 1 ? 'looks like a secret' : 'look like secrets'} in plain text. Such values are sealed first{scope === 'user' ? ', as yours,' : ''} and named by reference above.</span>
              <Button busy={busy} onClick={() => void keep()}>Seal {count(found.secrets.length, 'secret')}</Button></div>
          )}
          {failed && <ProblemView problem={failed} />}
          <div className="row-of">
            <Button busy={busy} disabled={!kept || name === ''} onClick={() => void send(true)}>Show the plan</Button>
            {plan && !plan.done && <Button tone="primary" busy={busy} onClick={() => void send(false)}>Import {count((plan.plan.tools ?? []).length, 'tool')}</Button>}
            {plan?.done && <Link className="button" href={`/servers/${encodeURIComponent(name)}`}>Open the server</Link>}
          </div>
          {plan && (
            <>
              {(plan.plan.warnings ?? []).map((w, i) => <p key={i} className="banner warn"><Icon name="warn" /><Text>{w}</Text></p>)}
              <div {...scrolls('Tools')}><table className="table"><thead><tr><th scope="col">Tool</th><th scope="col">Version</th><th scope="col">Change</th><th scope="col">State</th></tr></thead>
                <tbody>
                  {(plan.plan.tools ?? []).slice(0, 500).map((t) => <tr key={t.tool_id}><td><Text>{t.tool_id}</Text>{(t.findings ?? []).map((f, i) => <div key={i} className="soft"><Icon name="warn" size={12} /> <Text>{f.message}</Text></div>)}</td><td><Text>{t.version}</Text></td><td><Badge tone={tones[t.change]}>{t.change}</Badge></td><td><Text>{t.state}</Text></td></tr>)}
                  {(plan.plan.refused ?? []).map((r) => <tr key={`r${r.index}`}><td><Text>{r.tool}</Text></td><td colSpan={2}><Badge tone="bad">refused</Badge></td><td><Text>{r.reason}</Text></td></tr>)}
                </tbody></table></div>
            </>
          )}
        </>
      )}
    </section>
  )
}
