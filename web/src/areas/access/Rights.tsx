import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { Link } from 'wouter'
import { api, must } from '../../core/api'
import { text, useFilters, whole } from '../../core/filters'
import { count } from '../../core/format'
import { Badge, type Tone } from '../../parts/Badge'
import { Button } from '../../parts/Button'
import { Field } from '../../parts/Field'
import { Page } from '../../parts/Page'
import { Empty, States } from '../../parts/States'
import { Text } from '../../parts/Text'
import { scrolls } from '../../parts/scrolls'
import { tabs } from './tabs'

const spec = { tool: text, subject: text, page: whole(1) }
export const decisions: Record<string, { tone: Tone; word: string }> = {
  allowed: { tone: 'ok', word: 'may call' },
  needs_approval: { tone: 'warn', word: 'after an approval' },
  denied: { tone: 'bad', word: 'may not' },
  hidden: { tone: 'soft', word: 'does not see it' },
  undecided: { tone: 'warn', word: 'undecided, so refused' },
}

/** Which keys may call a tool, or which tools a subject's keys may call. */
export default function Rights() {
  const [f, set] = useFilters(spec)
  const [tool, setTool] = useState(f.tool)
  const [subject, setSubject] = useState(f.subject)
  const asked = f.tool !== '' || f.subject !== ''
  const query = useQuery({
    queryKey: ['rights', f],
    enabled: asked,
    queryFn: () => (f.tool !== ''
      ? must(api.GET('/api/v1/policies/who', { params: { query: { tool_id: f.tool, page: f.page, page_size: 100 } } }))
      : must(api.GET('/api/v1/policies/what', { params: { query: { subject: f.subject, page: f.page, page_size: 100 } } }))),
  })
  return (
    <Page title="Who may what" tabs={tabs()} lead="As roles, scopes and the policy decide now, without a call's arguments.">
      <div className="filters">
        <Field label="Who may call the tool" value={tool} onChange={setTool} placeholder="std.echo" onEnter={() => set({ tool: tool.trim(), subject: '', page: 1 })} />
        <Button onClick={() => set({ tool: tool.trim(), subject: '', page: 1 })} disabled={tool.trim() === ''}>Show keys</Button>
        <Field label="What the subject may call" value={subject} onChange={setSubject} placeholder="bot" onEnter={() => set({ subject: subject.trim(), tool: '', page: 1 })} />
        <Button onClick={() => set({ subject: subject.trim(), tool: '', page: 1 })} disabled={subject.trim() === ''}>Show tools</Button>
      </div>
      {!asked ? <Empty title="Name a tool or a subject">The answer says for each key what is decided, and by which role or rule.</Empty> : (
        <States query={query} empty={(data) => (data.rights ?? []).length === 0 && <Empty title="No key fits">{f.tool !== '' ? 'No valid key may be asked about this tool.' : 'The subject has no valid API key.'}</Empty>}>
          {(data) => (
            <>
              <p role="status">{count(data.total_count, 'line')}{f.tool !== '' ? <> for <Text>{f.tool}</Text></> : <> for <Text>{f.subject}</Text></>}</p>
              <div {...scrolls('Rights')}>
                <table className="table">
                  <thead><tr><th scope="col">{f.tool !== '' ? 'Subject' : 'Tool'}</th><th scope="col">Key</th><th scope="col">Roles</th><th scope="col">Decision</th><th scope="col">Why</th></tr></thead>
                  <tbody>
                    {(data.rights ?? []).map((one, i) => (
                      <tr key={i}>
                        <td>{f.tool !== '' ? <Text>{one.subject}</Text> : <><Link href={`/tools/${encodeURIComponent(one.tool_id)}`}><Text>{one.tool_id}</Text></Link> <span className="soft">{one.tool_version}</span></>}</td>
                        <td><Link href={`/access/keys/${encodeURIComponent(one.key_id)}`}><Text mono>{one.key_id}</Text></Link></td>
                        <td><Text>{(one.roles ?? []).join(', ')}</Text></td>
                        <td><Badge tone={decisions[one.decision]?.tone}>{decisions[one.decision]?.word ?? one.decision}</Badge></td>
                        <td><Text>{one.reason}</Text>{one.code && <span className="soft"> {one.code}</span>}{one.rule && <div className="soft"><Text mono>{one.rule}</Text></div>}</td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
              {data.total_count > 100 && (
                <div className="row-of">
                  <Button disabled={f.page <= 1} onClick={() => set({ page: f.page - 1 })}>Before</Button>
                  <span>Page {f.page} of {Math.ceil(data.total_count / 100)}</span>
                  <Button disabled={f.page * 100 >= data.total_count} onClick={() => set({ page: f.page + 1 })}>Next</Button>
                </div>
              )}
            </>
          )}
        </States>
      )}
    </Page>
  )
}
