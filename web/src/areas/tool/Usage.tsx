import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { Link } from 'wouter'
import { api, must } from '../../core/api'
import { count, duration, number, percent } from '../../core/format'
import { Badge, type Tone } from '../../parts/Badge'
import { ProblemView, States } from '../../parts/States'
import { problem } from '../../core/problem'
import { Text } from '../../parts/Text'
import { Time } from '../../parts/Time'
import { scrolls } from '../../parts/scrolls'
import { manifestOf, type ToolAnswer } from './wire'

const tones: Record<string, Tone> = { healthy: 'ok', degraded: 'warn', unhealthy: 'bad' }

/** How a tool did for the tenant: calls, errors and what solved them, health. */
export function Usage({ tool }: { tool: ToolAnswer }) {
  const id = tool.tool_id
  const used = useQuery({
    queryKey: ['tool', id, 'usage'],
    queryFn: ({ signal }) => must(api.GET('/api/v1/tools/retrieval/manifest/{toolId}', { params: { path: { toolId: id }, query: { includeAnalytics: true, includeExamples: false, includeRelationships: false } }, signal })),
  })
  const health = useQuery({
    queryKey: ['tool', id, 'health'],
    queryFn: ({ signal }) => must(api.GET('/api/v1/tools/{tool_id}/health', { params: { path: { tool_id: id } }, signal })),
  })
  const known = manifestOf(tool).common_errors ?? []
  return (
    <div className="stack">
      <States query={used}>
        {({ data }) => {
          const a = data.analytics
          if (!a) return <p className="soft">Nobody of your tenant has called this tool yet.</p>
          return (
            <>
              <div className="tool-figures">
                <Figure name="Calls" value={number(a.totalExecutions)} />
                <Figure name="Succeeded" value={percent(a.successRate)} />
                <Figure name="Takes on average" value={duration(a.avgExecutionTimeMs)} />
                <Figure name="Last used" value={<Time at={a.lastUsed} />} />
              </div>
              <section>
                <h2>Errors, and what solved them</h2>
                {a.errorPatterns.length === 0 ? <p className="soft">None so far.</p> : (
                  <div {...scrolls('Errors')}><table className="table">
                    <thead><tr><th scope="col">Error</th><th scope="col" className="end">Times</th><th scope="col">What worked afterwards</th></tr></thead>
                    <tbody>{a.errorPatterns.map((e) => <tr key={e.errorType}><td><code>{e.errorType}</code></td><td className="end">{number(e.frequency)}</td><td>{e.commonResolution ? <Text most={400}>{e.commonResolution}</Text> : <span className="soft">not known yet</span>}</td></tr>)}</tbody>
                  </table></div>
                )}
              </section>
            </>
          )
        }}
      </States>
      {known.length > 0 && (
        <section>
          <h2>Errors that its manifest knows</h2>
          <div {...scrolls('Known errors')}><table className="table">
            <thead><tr><th scope="col">Error</th><th scope="col">What to do</th></tr></thead>
            <tbody>{known.slice(0, 100).map((e, i) => <tr key={i}><td><Text most={400}>{e.error}</Text></td><td><Text most={600}>{e.resolution}</Text></td></tr>)}</tbody>
          </table></div>
        </section>
      )}
      <section>
        <h2>Health</h2>
        {health.error ? <ProblemView problem={problem(health.error)} /> : health.data && (
          <dl className="facts">
            <dt>Now</dt><dd><Badge tone={tones[health.data.status] ?? 'soft'}>{health.data.status}</Badge></dd>
            <dt>Circuit breaker</dt><dd>{health.data.circuit_breaker_state.replaceAll('_', ' ')}</dd>
            <dt>Failing</dt><dd>{number(health.data.error_rate_percent)} %</dd>
            <dt>Latency</dt><dd>{duration(health.data.average_latency_ms)} on average</dd>
            {health.data.last_check_time && <><dt>Last looked at</dt><dd><Time at={health.data.last_check_time} /></dd></>}
          </dl>
        )}
      </section>
      <p><Link href={`/calls?tool_id=${encodeURIComponent(id)}`}>All calls of this tool</Link>{used.data?.data.analytics && <span className="soft"> ({count(used.data.data.analytics.totalExecutions, 'call')} in all recorded time)</span>}</p>
    </div>
  )
}

const Figure = ({ name, value }: { name: string; value: ReactNode }) => <div className="card tool-figure"><span className="soft">{name}</span><strong>{value}</strong></div>
