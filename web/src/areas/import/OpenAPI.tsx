import { useState } from 'react'
import { Link, Redirect } from 'wouter'
import { api, must } from '../../core/api'
import { count } from '../../core/format'
import { problem, type Problem } from '../../core/problem'
import type { components } from '../../core/schema'
import { may, queries } from '../../core/session'
import { Badge, type Tone } from '../../parts/Badge'
import { Button } from '../../parts/Button'
import { Check, Field } from '../../parts/Field'
import { Icon } from '../../parts/Icon'
import { Page } from '../../parts/Page'
import { Rows } from '../../parts/Rows'
import { Empty, ProblemView } from '../../parts/States'
import { Text } from '../../parts/Text'
import { scrolls } from '../../parts/scrolls'
import { Drop } from './Drop'
import { lines, pairs } from './read'
import { tabs } from './tabs'

type Answer = components['schemas']['ImportAnswer']
type Body = components['schemas']['ImportRequestBody']
type Tool = Answer['tools'][number]

export const changes: Record<string, Tone> = { new: 'ok', unchanged: 'soft', patch: 'info', minor: 'info', major: 'warn' }

/** Makes tools of an OpenAPI document: first the plan, then what it says. */
export default function OpenAPI() {
  return may('catalog:publish') ? <Import /> : <Redirect to="/import/mcp" replace />
}

function Import() {
  const [document, setDocument] = useState('')
  const [location, setLocation] = useState('')
  const [namespace, setNamespace] = useState('')
  const [server, setServer] = useState('')
  const [auth, setAuth] = useState('')
  const [include, setInclude] = useState('')
  const [exclude, setExclude] = useState('')
  const [force, setForce] = useState(false)
  const [busy, setBusy] = useState(false)
  const [failed, setFailed] = useState<Problem>()
  const [fault, setFault] = useState('')
  const [answer, setAnswer] = useState<{ answer: Answer; body: Body; done: boolean }>()
  const references = pairs(auth)

  // What was planned is what is published: a change of the form needs a new plan.
  function change<T>(set: (value: T) => void) {
    return (value: T) => { set(value); setAnswer(undefined) }
  }

  async function send(body: Body, done: boolean) {
    setBusy(true)
    setFailed(undefined)
    try {
      setAnswer({ answer: await must(api.POST('/api/v1/tools/import', { body })), body, done })
      if (done) await queries.invalidateQueries()
    } catch (err) {
      setFailed(problem(err))
    } finally {
      setBusy(false)
    }
  }

  function plan() {
    void send({
      type: 'openapi', dry_run: true,
      document: location.trim() === '' ? document : undefined, location: location.trim() || undefined,
      namespace: namespace.trim() || undefined, server: server.trim() || undefined,
      auth: Object.keys(references.values).length > 0 ? references.values : undefined,
      include: lines(include), exclude: lines(exclude), force: force || undefined,
    } as Body, false)
  }

  return (
    <Page title="Import" tabs={tabs()} lead="Each operation of an OpenAPI document becomes a tool. The plan says what would be published and what is refused, and why; nothing is published before you say so.">
      <div className="columns">
        <div className="stack">
          <Drop label="OpenAPI document" accept=".json,.yaml,.yml" value={document} onChange={(text) => { setDocument(text); setFault(''); setAnswer(undefined) }} onFault={setFault} />
          {fault && <p className="banner bad" role="alert"><Icon name="warn" />{fault}</p>}
        </div>
        <div className="stack">
          <Field label="Or its address" type="url" value={location} onChange={change(setLocation)} placeholder="https://api.example/openapi.json" description="The server fetches it." />
          <Field label="Namespace" value={namespace} onChange={change(setNamespace)} description="Of the tools; without one it is made from the title." />
          <Field label="Address of the API" type="url" value={server} onChange={change(setServer)} description="In place of the document's." />
          <Field label="Secrets" rows={2} mono value={auth} onChange={change(setAuth)} error={references.fault} placeholder="api_key=secret://petstore" description="A security scheme and a reference a line, never a value." />
          <details>
            <summary>Which operations</summary>
            <div className="stack">
              <Field label="Only these" rows={2} mono value={include} onChange={change(setInclude)} placeholder="path:/pets/*" description="Patterns id:, path:, tag: or method:, one a line." />
              <Field label="Without these" rows={2} mono value={exclude} onChange={change(setExclude)} />
              <Check label="Publish breaking changes without a new major version" checked={force} onChange={change(setForce)} />
            </div>
          </details>
          <Button tone="primary" busy={busy && !answer} disabled={(document.trim() === '' && location.trim() === '') || references.fault !== undefined} onClick={plan}>Show the plan</Button>
        </div>
      </div>
      {failed && <ProblemView problem={failed} />}
      {answer && <Plan {...answer} busy={busy} publish={() => void send({ ...answer.body, dry_run: false }, true)} />}
    </Page>
  )
}

function Plan({ answer: a, done, busy, publish }: { answer: Answer; done: boolean; busy: boolean; publish: () => void }) {
  const tools = a.tools ?? []
  const changed = tools.filter((t) => t.change !== 'unchanged').length
  return (
    <section className="stack" aria-label="Plan">
      <h2><Text most={200}>{a.title}</Text> <span className="soft"><Text most={40}>{a.version}</Text></span></h2>
      <p role="status" className={done ? 'banner ok' : undefined}>{done && <Icon name="check" />}
        {done ? <>{count((a.published ?? []).filter((v) => v.created).length, 'version')} published in the namespace <Text>{a.namespace}</Text>. <Link href={`/tools?namespace=${encodeURIComponent(a.namespace)}`}>See them</Link></>
          : <>{count(a.operations, 'operation')}: {count(tools.length, 'tool')} in the namespace <strong><Text>{a.namespace}</Text></strong>, {changed} of them new or changed; {(a.refused ?? []).length} refused{!!a.excluded && `; ${a.excluded} left out`}.</>}
      </p>
      {!done && <div><Button tone="primary" busy={busy} disabled={changed === 0} onClick={publish}>{changed === 0 ? 'Nothing to publish' : `Publish ${count(changed, 'tool')}`}</Button></div>}
      {(a.warnings ?? []).map((w, i) => <p key={i} className="banner warn"><Icon name="warn" /><Text>{w}</Text></p>)}
      {(a.refused ?? []).length > 0 && (
        <details open={tools.length === 0}>
          <summary>{count(a.refused!.length, 'operation')} refused</summary>
          <div {...scrolls('Refused operations')}><table className="table"><thead><tr><th scope="col">Operation</th><th scope="col">Why</th></tr></thead>
            <tbody>{a.refused!.slice(0, 500).map((r, i) => <tr key={i}><td><Text mono>{r.operation}</Text></td><td><Text>{r.reason}</Text></td></tr>)}</tbody></table></div>
        </details>
      )}
      {tools.length === 0 ? <Empty title="No operation becomes a tool">The reasons stand above.</Empty> : (
        <Rows<Tool> label="planned tools" count={tools.length} row={(i) => tools[i]} rowKey={(t) => t.name} href={done ? (t) => `/tools/${encodeURIComponent(t.name)}` : undefined}
          columns={[
            { title: 'Tool', width: 'minmax(0, 1.5fr)', cell: (t) => <Text most={120}>{t.name}</Text> },
            { title: 'Operation', width: 'minmax(0, 1.5fr)', phone: false, cell: (t) => <Text most={200} mono>{`${t.method} ${t.path}`}</Text> },
            { title: 'Version', width: '90px', phone: false, cell: (t) => <Text most={40}>{t.version}</Text> },
            { title: 'Change', width: '120px', cell: (t) => <Badge tone={changes[t.change]}>{t.change}</Badge> },
          ]} />
      )}
    </section>
  )
}
