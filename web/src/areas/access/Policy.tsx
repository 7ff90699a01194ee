import { useQuery } from '@tanstack/react-query'
import { useId, useState } from 'react'
import { Link } from 'wouter'
import { api, must } from '../../core/api'
import { count } from '../../core/format'
import { problem, type Problem } from '../../core/problem'
import type { components } from '../../core/schema'
import { Badge } from '../../parts/Badge'
import { Button } from '../../parts/Button'
import { Page } from '../../parts/Page'
import { Empty, ProblemView, States } from '../../parts/States'
import { Text } from '../../parts/Text'
import { Time } from '../../parts/Time'
import { scrolls } from '../../parts/scrolls'
import { decisions } from './Rights'
import { tabs } from './tabs'

/** The policy that decides after the roles, and what another one would have decided. */
export default function Policy() {
  const query = useQuery({ queryKey: ['policies'], queryFn: () => must(api.GET('/api/v1/policies')) })
  return (
    <Page title="Policy" tabs={tabs()} lead="A policy decides calls by attributes, after the roles. What it would change is tried on the newest calls before it is put in force.">
      <States query={query} empty={(data) => (data.policies ?? []).length === 0 && <Empty title="Roles decide alone">No policy is set up. The setting <code>policy.path</code> names one; docs/policies.md says how it is written.</Empty>}>
        {(data) => (data.policies ?? []).map((one) => (
          <dl key={one.digest} className="facts card">
            <dt>From</dt><dd><Text mono>{one.source}</Text></dd>
            <dt>Digest</dt><dd><Text mono>{one.digest}</Text></dd>
            <dt>Loaded</dt><dd><Time at={one.loaded_at} /></dd>
            <dt>Files</dt><dd>{count(one.files ?? 0, 'file')}, {count((one.rules ?? []).length, 'rule')}, {count(one.tests ?? 0, 'test')}</dd>
            <dt>Reads</dt><dd><Text mono>{(one.reads ?? []).join(', ')}</Text></dd>
            {one.refused && <><dt>Last change</dt><dd><Badge tone="bad">refused</Badge> <Text>{one.refused}</Text></dd></>}
          </dl>
        ))}
      </States>
      <Replay />
    </Page>
  )
}

function Replay() {
  const id = useId()
  const [files, setFiles] = useState<Record<string, string>>({})
  const [busy, setBusy] = useState(false)
  const [failed, setFailed] = useState<Problem>()
  const [result, setResult] = useState<components['schemas']['Replay']>()
  async function take(list: FileList | null) {
    const texts: Record<string, string> = {}
    for (const file of list ?? []) if (file.name.endsWith('.rego') || file.name === 'data.json') texts[file.webkitRelativePath || file.name] = await file.text()
    setFiles(texts)
    setResult(undefined)
  }
  async function run() {
    setBusy(true)
    setFailed(undefined)
    try {
      setResult(await must(api.POST('/api/v1/policies/replay', { body: { files, last: 1000 } })))
    } catch (err) {
      setFailed(problem(err))
    } finally {
      setBusy(false)
    }
  }
  const names = Object.keys(files)
  return (
    <section className="card stack" aria-label="Try a policy">
      <h2>What another policy would change</h2>
      <div className="field"><label htmlFor={id}>Its files (*.rego and data.json)</label><input id={id} className="input" type="file" multiple accept=".rego,.json" onChange={(event) => void take(event.target.files)} /></div>
      {names.length > 0 && <p className="soft"><Text>{names.join(', ')}</Text></p>}
      <div><Button busy={busy} disabled={names.length === 0} onClick={run}>Decide the newest 1,000 calls again</Button></div>
      {failed && <ProblemView problem={failed} />}
      {result && (
        <div role="status" className="stack">
          <p>{count(result.calls, 'call')} looked at: {result.same} decided the same, {(result.changed ?? []).length} otherwise, {result.not_asked} refused before a policy is asked, {(result.not_replayed ?? []).length} that cannot be decided again{result.timed_out && '. The time ended before the last call'}.</p>
          {(result.changed ?? []).length > 0 && (
            <div {...scrolls('Decisions that change')}>
              <table className="table">
                <thead><tr><th scope="col">Call</th><th scope="col">Agent</th><th scope="col">Tool</th><th scope="col">Was</th><th scope="col">Would be</th><th scope="col">Why</th></tr></thead>
                <tbody>{(result.changed ?? []).slice(0, 500).map((one) => (
                  <tr key={one.invocation_id}>
                    <td><Link href={`/calls/${encodeURIComponent(one.invocation_id)}`}><Time at={one.at} /></Link></td>
                    <td><Text>{one.agent_id}</Text></td><td><Text>{one.tool_id}</Text></td>
                    <td><Badge tone={decisions[one.was]?.tone}>{one.was.replace('_', ' ')}</Badge></td>
                    <td><Badge tone={decisions[one.would]?.tone}>{one.would.replace('_', ' ')}</Badge></td>
                    <td><Text>{one.reason}</Text>{one.rule && <div className="soft"><Text mono>{one.rule}</Text></div>}</td>
                  </tr>
                ))}</tbody>
              </table>
            </div>
          )}
        </div>
      )}
    </section>
  )
}
