import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { Link } from 'wouter'
import { api, must } from '../../core/api'
import { Badge, type Tone } from '../../parts/Badge'
import { Diff } from '../../parts/Diff'
import { Select } from '../../parts/Field'
import { States } from '../../parts/States'
import { Text } from '../../parts/Text'
import { Time } from '../../parts/Time'
import { scrolls } from '../../parts/scrolls'
import { State } from './badges'
import type { ToolAnswer } from './wire'

const kinds: Record<string, Tone> = { breaking: 'bad', major: 'bad', additive: 'info', minor: 'info', patch: 'soft', none: 'soft' }

/** The versions of a tool, and what differs between two of them. */
export function Versions({ tool }: { tool: ToolAnswer }) {
  const id = tool.tool_id
  const versions = useQuery({
    queryKey: ['tool', id, 'versions'],
    queryFn: ({ signal }) => must(api.GET('/api/v1/tools/{tool_id}/versions', { params: { path: { tool_id: id } }, signal })),
  })
  return (
    <States query={versions}>
      {(data) => (
        <div className="stack">
          <div {...scrolls('Versions')}>
            <table className="table">
              <thead><tr><th scope="col">Version</th><th scope="col">State</th><th scope="col">Published</th><th scope="col">By</th><th scope="col">Note</th></tr></thead>
              <tbody>
                {data.versions.map((v) => (
                  <tr key={v.version}>
                    <td><Link href={`/tools/${encodeURIComponent(id)}?version=${encodeURIComponent(v.version)}`}>{v.version}</Link></td>
                    <td><State state={v.lifecycle.state} />{v.lifecycle.held && <> <Badge tone="bad">held</Badge></>}</td>
                    <td><Time at={v.lifecycle.published_at} /></td>
                    <td><Text most={80}>{v.lifecycle.published_by}</Text></td>
                    <td><Text most={300}>{v.lifecycle.held?.why ?? v.lifecycle.reason}</Text></td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
          {data.versions.length > 1 ? <Compare id={id} versions={data.versions.map((v) => v.version)} /> : <p className="soft">There is one version. With a second one, what differs is shown here.</p>}
        </div>
      )}
    </States>
  )
}

function Compare({ id, versions }: { id: string; versions: string[] }) {
  const [from, setFrom] = useState(versions[1]!)
  const [to, setTo] = useState(versions[0]!)
  const options = versions.map((v) => ({ value: v, label: v }))
  const path = { tool_id: id }
  const both = useQuery({
    queryKey: ['tool', id, 'diff', from, to], staleTime: Infinity,
    queryFn: async ({ signal }) => {
      const one = (version: string) => must(api.GET('/api/v1/tools/{tool_id}', { params: { path, query: { version } }, signal }))
      const [diff, before, after] = await Promise.all([must(api.GET('/api/v1/tools/{tool_id}/diff', { params: { path, query: { from, to } }, signal })), one(from), one(to)])
      return { diff, before: before.manifest, after: after.manifest }
    },
  })
  return (
    <section className="stack" aria-label="Difference between two versions">
      <div className="filters"><Select label="From" options={options} value={from} onChange={setFrom} /><Select label="To" options={options} value={to} onChange={setTo} /></div>
      {from === to ? <p className="soft">Choose two versions.</p> : (
        <States query={both}>
          {({ diff, before, after }) => (
            <>
              <p>The difference amounts to <Badge tone={kinds[diff.bump] ?? 'soft'}>{diff.bump}</Badge></p>
              {diff.differences.length > 0 && <ul className="tool-list">{diff.differences.map((d, i) => <li key={i}><Badge tone={kinds[d.kind] ?? 'soft'}>{d.kind}</Badge> <code><Text most={300}>{d.pointer}</Text></code> <Text most={600}>{d.message}</Text></li>)}</ul>}
              <Diff before={before} after={after} beforeLabel={from} afterLabel={to} />
            </>
          )}
        </States>
      )}
    </section>
  )
}
