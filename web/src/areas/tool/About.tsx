import { Fragment, type ReactNode } from 'react'
import { Link } from 'wouter'
import { duration } from '../../core/format'
import { Json } from '../../parts/Json'
import { Text } from '../../parts/Text'
import { Time } from '../../parts/Time'
import { Tree } from '../../parts/Tree'
import { scrolls } from '../../parts/scrolls'
import { kindOf, read } from './form/schema'
import { manifestOf, type ToolAnswer } from './wire'

/** What a tool's manifest says. */
export function About({ tool }: { tool: ToolAnswer }) {
  const m = manifestOf(tool)
  const life = tool.lifecycle
  const list = (values: string[] | undefined) => values && values.length > 0 && values.map((v, i) => <code key={i}><Text most={100}>{v}</Text></code>)
  const facts: [string, ReactNode][] = [
    ['Category', m.category && <Link href={`/tools?category=${encodeURIComponent(m.category)}`}><Text most={100}>{m.category}</Text></Link>],
    ['Tags', m.tags && m.tags.length > 0 && m.tags.map((t) => <Fragment key={t}><Link href={`/tools?tag=${encodeURIComponent(t)}`}><Text most={60}>{t}</Text></Link> </Fragment>)],
    ['Capabilities', list(m.capabilities)],
    ['Effects', m.side_effects && <>{m.side_effects}{m.idempotent ? ', the same when it is repeated' : ''}</>],
    ['Risk', m.risk],
    ['Complexity', m.complexity],
    ['Runs by', m.execution && <><Text most={60}>{String(m.execution.type ?? m.execution.kind ?? '')}</Text>{m.execution.timeout_ms ? `, at most ${duration(m.execution.timeout_ms)}` : ''}</>],
    ['Roles needed', list(m.required_roles)],
    ['Permissions needed', list(m.permission_levels)],
    ['Secrets', m.auth && m.auth.length > 0 && <Text most={200}>{m.auth.map((a) => a.type).filter(Boolean).join(', ')}</Text>],
    ['Fallback', m.fallback && <Link href={`/tools/${encodeURIComponent(m.fallback)}`}><Text most={200}>{m.fallback}</Text></Link>],
    ['Version', tool.version],
    ['Published', <><Time at={life.published_at} full />{life.published_by && <> by <Text most={100}>{life.published_by}</Text></>}{life.forced && ', although it breaks what was there'}</>],
    ['Folder', life.folder && <Text most={100}>{life.folder}</Text>],
    ['Digest', <code key="digest" className="tool-digest">{tool.digest}</code>],
    ['Shared', tool.shared && 'with all tenants'],
  ]
  return (
    <div className="columns">
      <div className="stack">
        {m.description && <section><h2>What it does</h2><p><Text>{m.description}</Text></p></section>}
        {m.explanation && <section><h2>How it works</h2><p><Text>{m.explanation}</Text></p></section>}
        {m.input_guidance && <section><h2>What to send</h2><p><Text>{m.input_guidance}</Text></p></section>}
        {m.use_cases && m.use_cases.length > 0 && <section><h2>What it is for</h2><ul>{m.use_cases.map((u, i) => <li key={i}><Text most={600}>{u}</Text></li>)}</ul></section>}
        {m.release_notes && <section><h2>Release notes</h2><p><Text>{m.release_notes}</Text></p></section>}
        {m.migration_guide && <section><h2>How to move to this version</h2><p><Text>{m.migration_guide}</Text></p></section>}
        <section className="stack"><h2>Arguments</h2><Members schema={m.parameters_schema ?? {}} none="It takes none." /></section>
        {m.result_schema !== undefined && <section className="stack"><h2>Result</h2><Members schema={m.result_schema} none="Its schema names no members." /></section>}
        <details><summary>The whole manifest</summary><Json value={tool.manifest} label="Manifest" /></details>
      </div>
      <dl className="facts card">
        {facts.filter(([, v]) => v !== undefined && v !== false && v !== '').map(([name, v]) => <Fragment key={name}><dt>{name}</dt><dd>{v}</dd></Fragment>)}
      </dl>
    </div>
  )
}

// Members are those of an object's schema in a table, with the whole schema below.
function Members({ schema, none }: { schema: unknown; none: string }) {
  const node = read(schema, schema)
  const members = node.kind === 'object' ? node.members : []
  return (
    <>
      {members.length > 0 ? (
        <div {...scrolls('Members')}><table className="table">
          <thead><tr><th scope="col">Name</th><th scope="col">Kind</th><th scope="col">What it is</th></tr></thead>
          <tbody>
            {members.slice(0, 100).map((one) => {
              const of = read(one.schema, schema)
              return <tr key={one.name}><td><code><Text most={100}>{one.name}</Text></code></td><td>{kindOf(of)}{one.required && <strong> required</strong>}</td><td><Text most={400}>{of.description || of.title}</Text></td></tr>
            })}
          </tbody>
        </table></div>
      ) : <p className="soft">{none}</p>}
      <details><summary>Schema</summary><Tree value={schema} name="schema" /></details>
    </>
  )
}
