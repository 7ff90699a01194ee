import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { Link } from 'wouter'
import { api, must } from '../../core/api'
import { number } from '../../core/format'
import type { components } from '../../core/schema'
import { Badge, type Tone } from '../../parts/Badge'
import { Button } from '../../parts/Button'
import { Confirm } from '../../parts/Dialog'
import { Page } from '../../parts/Page'
import { States } from '../../parts/States'
import { Text } from '../../parts/Text'
import { Time } from '../../parts/Time'
import { toast } from '../../parts/Toast'
import { Wide } from './Wide'
import './system.css'

type Breaker = components['schemas']['Breaker']
type Answer = components['schemas']['LimitReport']

/** What stops calls: breakers that opened, places that are taken, limits that were met. */
export default function Limits() {
  const limits = useQuery({ queryKey: ['limits'], queryFn: ({ signal }) => must(api.GET('/api/v1/limits', { signal })), refetchInterval: 3000 })
  return (
    <Page title="Limits and breakers">
      <Breakers />
      <States query={limits}>{(said) => <>
        {said.bulkheads && <Bulkheads bulkheads={said.bulkheads} />}
        <Refused limits={said} />
        <InForce limits={said} />
      </>}</States>
    </Page>
  )
}

const states: Record<Breaker['state'], { tone: Tone; word: string }> = {
  closed: { tone: 'ok', word: 'Closed' }, open: { tone: 'bad', word: 'Open' }, half_open: { tone: 'warn', word: 'Tests' },
  forced_open: { tone: 'bad', word: 'Forced open' }, forced_closed: { tone: 'warn', word: 'Forced closed' },
}
const actions = { open: { word: 'Refuse all calls', title: 'Refuse all calls of', done: 'refuses all calls', tone: 'bad' }, close: { word: 'Let all through', title: 'Let all calls through to', done: 'lets all calls through', tone: 'primary' }, reset: { word: 'Reset', title: 'Reset', done: 'is reset', tone: 'primary' } } as const
type Action = keyof typeof actions

function Breakers() {
  const queries = useQueryClient()
  const query = useQuery({ queryKey: ['breakers'], queryFn: () => must(api.GET('/api/v1/breakers', { params: { query: { page_size: 200 } } })), refetchInterval: 3000 })
  const [asks, setAsks] = useState<{ breaker: Breaker; action: Action }>()
  const action = asks && actions[asks.action]
  return (
    <section className="stack">
      <h2>Circuit breakers</h2>
      <States query={query} empty={(all) => all.breakers.length === 0 && <p className="soft">No tool was called lately, and no breaker is open.</p>}>{(all) => (
        <Wide label="Circuit breakers">
          <thead><tr><th scope="col">Of</th><th scope="col">State</th><th scope="col">Why</th><th scope="col" className="end">Failed of the last</th><th scope="col" className="end">In a row</th><th scope="col" className="end">Refused</th><th scope="col"><span className="sr">Actions</span></th></tr></thead>
          <tbody>
            {all.breakers.map((b) => (
              <tr key={`${b.breaker}${b.shared ? ' shared' : ''}`}>
                <td><Text most={200}>{b.breaker}</Text>{b.shared && <span className="soft"> (of all tenants)</span>}</td>
                <td><Badge tone={states[b.state].tone}>{states[b.state].word}</Badge></td>
                <td>
                  {b.by && <><Text most={80}>{b.by}</Text>: </>}<Text most={300}>{b.reason && (reasons[b.reason] ?? b.reason)}</Text>
                  {b.of_calls !== undefined && b.of_calls > 0 && ` ${number(b.failed_calls ?? 0)} failed and ${number(b.slow_calls ?? 0)} were slow of ${number(b.of_calls)}.`}
                  {b.since && <div className="soft">since <Time at={b.since} />{b.until && b.state === 'open' && <>, tests <Time at={b.until} /></>}{b.state === 'half_open' && `, ${number(b.tests_passed ?? 0)} of ${number(b.tests_needed)} tests passed`}</div>}
                </td>
                <td className="end">{number(b.window_failures)} of {number(b.window_calls)}</td><td className="end">{number(b.failures_in_a_row)}</td><td className="end">{number(b.refused)}</td>
                <td className="system-actions">
                  {(b.state === 'closed' || b.state === 'half_open' || b.state === 'forced_closed') && <Button tone="quiet" aria-label={`Open ${b.breaker}`} onClick={() => setAsks({ breaker: b, action: 'open' })}>Open</Button>}
                  {(b.state === 'open' || b.state === 'half_open' || b.state === 'forced_open') && <Button tone="quiet" aria-label={`Close ${b.breaker}`} onClick={() => setAsks({ breaker: b, action: 'close' })}>Close</Button>}
                  {b.state !== 'closed' && <Button tone="quiet" aria-label={`Reset ${b.breaker}`} onClick={() => setAsks({ breaker: b, action: 'reset' })}>Reset</Button>}
                </td>
              </tr>
            ))}
          </tbody>
        </Wide>
      )}</States>
      <Confirm title={action ? `${action.title} ${asks.breaker.breaker}?` : ''} action={action?.word ?? ''} tone={action?.tone} reason={asks?.action === 'reset' ? undefined : 'optional'} open={asks !== undefined} onClose={() => setAsks(undefined)} onConfirm={async (reason) => {
        if (!asks) return
        await must(api.POST('/api/v1/breakers/{breaker}', { params: { path: { breaker: asks.breaker.breaker }, query: asks.breaker.shared ? { shared: true } : {} }, body: { action: asks.action, ...(reason === '' ? {} : { reason }) } }))
        toast(`${asks.breaker.breaker} ${action!.done}`)
        await queries.invalidateQueries({ queryKey: ['breakers'] })
      }}>
        <p>{asks?.action === 'reset' ? 'It is closed with nothing counted, and calls decide again.' : 'This holds on all nodes and after a restart, until it is reset.'}</p>
      </Confirm>
    </section>
  )
}

const reasons: Record<string, string> = {
  failure_rate: 'Too many calls failed.', slow_call_rate: 'Too many calls were slow.', error_count: 'Too many errors.',
  consecutive_failures: 'Too many failures in a row.', test_failed: 'A test call failed.',
}

function Bulkheads({ bulkheads }: { bulkheads: NonNullable<Answer['bulkheads']> }) {
  return (
    <section className="stack">
      <h2>Places for calls at once</h2>
      <div className="cards">
        {bulkheads.map((b) => (
          <div key={b.bulkhead} className="card">
            <div className="row-of"><strong className="grow">{b.bulkhead}</strong>{b.waiting > 0 && <Badge tone="warn">{number(b.waiting)} wait</Badge>}</div>
            <meter min={0} max={b.most} high={b.most * 0.8} optimum={0} value={b.running} aria-label={`Places taken of ${b.bulkhead}`} />
            <div className="soft">{number(b.running)} of {number(b.most)} taken{b.refused > 0 && `, ${number(b.refused)} refused`}</div>
          </div>
        ))}
      </div>
    </section>
  )
}

function Refused({ limits }: { limits: Answer }) {
  return (
    <section className="stack">
      <h2>Who met a limit lately</h2>
      {limits.refused.length === 0 ? <p className="soft">None was refused by a limit since <Time at={limits.since} full /> on the node {limits.node}.</p> : (
        <Wide label="Who met a limit">
          <thead><tr><th scope="col">Limit</th><th scope="col">Caller</th><th scope="col">Tool</th><th scope="col" className="end">Refused</th><th scope="col">Last</th></tr></thead>
          <tbody>
            {limits.refused.map((r, i) => (
              <tr key={i}>
                <td>{words[r.limit_type] ?? r.limit_type}</td>
                <td>{r.subject && <Link href={`/calls?${new URLSearchParams({ agent_id: r.subject, state: 'refused' })}`}><Text most={120}>{r.subject}</Text></Link>}</td>
                <td><Text most={120}>{r.tool_id}</Text></td><td className="end">{number(r.count)}</td><td><Time at={r.last_at} /></td>
              </tr>
            ))}
          </tbody>
        </Wide>
      )}
    </section>
  )
}

const words: Record<string, string> = {
  agent: 'Requests of an agent', agent_tool: 'Calls of an agent on a tool', tenant: 'Requests of the tenant', global: 'Requests of all', tool: 'Calls of a tool',
  upstream: 'Calls to an upstream', context: 'Calls on a tool by its context', console: 'Reads of a console', total: 'Calls at once', executor: 'Calls at once of a kind', costly: 'Costly calls at once', concurrency: 'Calls of an agent at once', agent_concurrent: 'Calls of an agent at once',
}

function InForce({ limits }: { limits: Answer }) {
  return (
    <section className="stack">
      <h2>Limits in force</h2>
      <Wide label="Limits in force">
        <thead><tr><th scope="col">Limit</th><th scope="col" className="end">A minute</th><th scope="col" className="end">At once</th></tr></thead>
        <tbody>{limits.limits.map((l, i) => <tr key={i}><td>{words[l.limit_type] ?? l.scope}</td><td className="end">{!l.per_minute || l.per_minute < 0 ? '–' : number(l.per_minute)}</td><td className="end">{l.at_once || l.burst ? number(l.at_once || l.burst!) : '–'}</td></tr>)}</tbody>
      </Wide>
      <p className="soft">They are settings: limits.… in the configuration, and rate_limit of a tool’s manifest. The numbers are of the node {limits.node}.</p>
    </section>
  )
}
