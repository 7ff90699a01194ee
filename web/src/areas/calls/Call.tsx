import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useEffect, useState } from 'react'
import { Link } from 'wouter'
import { announce } from '../../core/announce'
import { api, must } from '../../core/api'
import { parse } from '../../core/exact'
import { bytes, duration, number, usd } from '../../core/format'
import { problem, type Problem } from '../../core/problem'
import type { components } from '../../core/schema'
import { may, session } from '../../core/session'
import { stream } from '../../core/stream'
import { Badge } from '../../parts/Badge'
import { Button } from '../../parts/Button'
import { Confirm } from '../../parts/Dialog'
import { Json } from '../../parts/Json'
import { Page } from '../../parts/Page'
import { ProblemView, States } from '../../parts/States'
import { Strip } from '../../parts/Strip'
import { Outside, Text } from '../../parts/Text'
import { Time } from '../../parts/Time'
import { toast } from '../../parts/Toast'
import { Bar100, State } from './Calls'
import { ended, stateWords } from './model'
import { endOf } from './useLive'
import { Wide } from '../system/Wide'
import './calls.css'

type Answer = components['schemas']['InvocationAnswer']
type Meta = components['schemas']['ExecutionMetadata']

/** One call's whole way. */
export default function CallPage({ id }: { id: string }) {
  const queries = useQueryClient()
  const key = ['call', id]
  const query = useQuery({ queryKey: key, queryFn: () => must(api.GET('/api/v1/invocations/{invocation_id}', { params: { path: { invocation_id: id } } })) as Promise<Answer> })
  const [lost, setLost] = useState<Problem>()
  const going = query.data !== undefined && !ended(query.data.state)
  useEffect(() => {
    if (!going) return
    const abort = new AbortController()
    stream(`api/v1/invocations/${encodeURIComponent(id)}/events`, {
      signal: abort.signal,
      onEvent: ({ type, data }) => {
        if (type === 'result') {
          void queries.invalidateQueries({ queryKey: ['call', id] })
          return 'stop'
        }
        if (type === 'error') {
          setLost(endOf(data))
          return 'stop'
        }
        const now = parse(data) as Answer
        queries.setQueryData(['call', id], now)
        if (type === 'state') announce(stateWords[now.state]?.word ?? now.state)
      },
    }).then(() => queries.invalidateQueries({ queryKey: ['call', id] }), (err: unknown) => { if (!abort.signal.aborted) setLost(problem(err)) })
    return () => abort.abort()
  }, [going, id, queries])

  return (
    <Page title={query.data?.tool_id ? `Call of ${query.data.tool_id}` : 'Call'} badges={query.data && <State call={query.data} />}
      actions={query.data && <Actions call={query.data} changed={() => queries.invalidateQueries({ queryKey: key })} />}>
      {lost && <ProblemView problem={lost} />}
      <States query={query}>{(call) => <Whole call={call} />}</States>
    </Page>
  )
}

function Actions({ call, changed }: { call: Answer; changed: () => void }) {
  const [open, setOpen] = useState<'cancel' | 'requeue'>()
  const mine = call.agent_id === session().subject
  const going = !ended(call.state)
  const again = new URLSearchParams({ ...(call.tool_version ? { version: call.tool_version } : {}), call: call.invocation_id })
  return (
    <>
      {call.tool_id && <Link className="button" href={`/tools/${encodeURIComponent(call.tool_id)}?${again}`}>Use again</Link>}
      {going && may('invocations:cancel') && (call.state === 'running' || call.state === 'queued') && <Button onClick={() => setOpen('requeue')}>Queue again</Button>}
      {going && (mine || may('invocations:cancel')) && <Button tone="bad" disabled={call.cancel_requested} onClick={() => setOpen('cancel')}>{call.cancel_requested ? 'Is being cancelled' : 'Cancel the call'}</Button>}
      <CancelCall id={call.invocation_id} open={open === 'cancel'} onClose={() => setOpen(undefined)} done={changed} />
      <RequeueCall id={call.invocation_id} open={open === 'requeue'} onClose={() => setOpen(undefined)} done={changed} />
    </>
  )
}

interface Asking { id: string; open: boolean; onClose: () => void; done: () => void }

/** Asks whether a call is to be cancelled. */
export function CancelCall({ id, open, onClose, done }: Asking) {
  return (
    <Confirm title="Cancel the call?" action="Cancel the call" tone="bad" reason="optional" open={open} onClose={onClose} onConfirm={async (reason) => {
      const said = await must(api.POST('/api/v1/invocations/{invocation_id}/cancel', { params: { path: { invocation_id: id } }, body: reason === '' ? {} : { reason } }))
      toast(said.message || (said.cancelled ? 'The call is cancelled' : 'The call had ended'), said.cancelled ? 'ok' : 'info')
      done()
    }}>
      <p>What the tool has done until now stays done. The caller gets the answer that the call was cancelled.</p>
    </Confirm>
  )
}

/** Asks whether a call that its node lost is to be queued again. */
export function RequeueCall({ id, open, onClose, done }: Asking) {
  return (
    <Confirm title="Queue the call again?" action="Queue again" open={open} onClose={onClose} onConfirm={async () => {
      await must(api.POST('/api/v1/invocations/{invocation_id}/requeue', { params: { path: { invocation_id: id } } }))
      toast('The call is queued again')
      done()
    }}>
      <p>This is for a call whose node is gone. One whose node lives, or that may have written already, is refused with the reason.</p>
    </Confirm>
  )
}

function Whole({ call }: { call: Answer }) {
  const meta = call.execution_metadata
  return (
    <div className="columns">
      <div className="stack">
        {!ended(call.state) && <Progress call={call} />}
        {call.error && <Failed error={call.error} />}
        {meta?.steps && meta.steps.length > 0 && <section className="stack"><h2>Its way</h2><Strip steps={meta.steps.map((s) => (s.outcome === 'refuse' && call.error ? { ...s, code: call.error.error_code, reason: call.error.message } : s))} /><Shares meta={meta} /></section>}
        {meta?.attempts && meta.attempts.length > 0 && <Attempts meta={meta} />}
        {meta && meta.warnings.length > 0 && (
          <section className="stack"><h2>Warnings</h2><ul>{meta.warnings.map((w, i) => <li key={i}><code>{w.code}</code> <Text>{w.message}</Text></li>)}</ul></section>
        )}
        {call.result !== undefined && <section className="stack"><h2>Result</h2><Json value={call.result} label="Result" /></section>}
        {ended(call.state) && call.result === undefined && !call.error && <p className="soft">The result is not kept. It is for calls with an idempotency key and for asynchronous ones.</p>}
      </div>
      <Facts call={call} meta={meta} />
    </div>
  )
}

function Progress({ call }: { call: Answer }) {
  return (
    <section className="card stack" aria-label="Progress">
      <div className="row-of">
        {call.progress_percent !== undefined && <><Bar100 of={call.progress_percent / 100} /> <span>{call.progress_percent} %</span></>}
        {call.current_phase && <strong><Text most={200}>{call.current_phase}</Text></strong>}
        <Text most={500}>{call.progress_message ?? (call.progress_percent === undefined ? waits[call.state] : '')}</Text>
      </div>
      {call.state === 'pending_approval' && <Link href={`/approvals/${encodeURIComponent(call.invocation_id)}`}>Its approval</Link>}
    </section>
  )
}

const waits: Record<string, string> = {
  accepted: 'It was accepted and begins in a moment.',
  pending_approval: 'It waits until a person approves it.',
  queued: 'It waits for a worker.',
  running: 'It runs. The tool tells no progress.',
  input_required: 'The tool asked its caller a question and waits for the answer.',
}

function Failed({ error }: { error: components['schemas']['InvokeError'] }) {
  return (
    <section className="problem bad">
      <h2><code>{error.error_code}</code> {error.name.replaceAll('_', ' ')}</h2>
      <p><Text>{error.message}</Text></p>
      <p className="soft">{error.retryable ? 'It may work when it is tried again' : 'Trying again does not help'}{error.retry_after_s !== undefined && `, in ${number(error.retry_after_s)} s`}.</p>
      {error.details && Object.keys(error.details).length > 0 && <details><summary>Details</summary><Json value={error.details} label="Details of the error" /></details>}
    </section>
  )
}

// Shares shows where the time of a call went.
function Shares({ meta }: { meta: Meta }) {
  const steps = meta.steps!.filter((s) => s.outcome !== 'not_run' && s.took_us > 0)
  const all = steps.reduce((sum, s) => sum + s.took_us, 0)
  if (all === 0) return null
  return (
    <table className="table shares">
      <caption className="sr">Time of each step</caption>
      <tbody>
        {steps.map((s) => (
          <tr key={s.step}>
            <th scope="row">{s.name}</th>
            <td className="end">{duration(s.took_us / 1000)}</td>
            <td aria-hidden="true"><span className="share" style={{ width: `${Math.max(0.5, (100 * s.took_us) / all)}%` }} /></td>
          </tr>
        ))}
      </tbody>
    </table>
  )
}

function Attempts({ meta }: { meta: Meta }) {
  return (
    <section className="stack">
      <h2>Attempts</h2>
      <Wide label="Attempts">
        <thead><tr><th scope="col">#</th><th scope="col" className="end">After</th><th scope="col" className="end">Took</th><th scope="col">Tool</th><th scope="col">Ended with</th></tr></thead>
        <tbody>
          {meta.attempts!.map((a, i) => (
            <tr key={i}>
              <td>{i + 1}</td><td className="end">{duration(a.at_ms)}</td><td className="end">{duration(a.took_ms)}</td>
              <td><Text most={120}>{a.tool_id}</Text></td>
              <td>{a.error_code ? <Badge tone="bad">{a.error_code}</Badge> : <Badge tone="ok">answer</Badge>}</td>
            </tr>
          ))}
        </tbody>
      </Wide>
    </section>
  )
}

function Facts({ call, meta }: { call: Answer; meta?: Meta }) {
  const calls = (name: string, value: string) => <Link href={`/calls?${new URLSearchParams({ [name]: value })}`}><Text most={200}>{value}</Text></Link>
  return (
    <aside className="card" aria-label="Facts of the call">
      <dl className="facts">
        <dt>Call</dt><dd><Text mono>{call.invocation_id}</Text></dd>
        <dt>Tool</dt><dd>{call.tool_id ? <Link href={`/tools/${encodeURIComponent(call.tool_id)}`}><Text most={200}>{call.tool_id}</Text></Link> : '–'} {call.tool_version && <Text mono>{call.tool_version}</Text>}</dd>
        <dt>Caller</dt><dd>{calls('agent_id', call.agent_id)}</dd>
        {call.user_id && <><dt>For</dt><dd>{calls('user_id', call.user_id)}</dd></>}
        {call.actor_id && <><dt>Sent by</dt><dd><Text>{call.actor_id}</Text></dd></>}
        {call.allowed_by && <><dt>Allowed by</dt><dd>{call.allowed_by.map((by) => <div key={by}><Text>{by}</Text></div>)}</dd></>}
        {call.session_id && <><dt>Session</dt><dd>{calls('session_id', call.session_id)}</dd></>}
        {call.parent_invocation_id && <><dt>Made by</dt><dd><Link href={`/calls/${encodeURIComponent(call.parent_invocation_id)}`}><Text mono>{call.parent_invocation_id}</Text></Link></dd></>}
        <dt>Calls below</dt><dd><Link href={`/calls?${new URLSearchParams({ parent_invocation_id: call.invocation_id })}`}>Show them</Link></dd>
        <dt>Began</dt><dd><Time at={call.created_at} full /></dd>
        {meta && <>
          <dt>Ended</dt><dd><Time at={meta.completed_at} full /></dd>
          <dt>Took</dt><dd>{meta.duration_ms < 1 ? 'less than 1 ms' : duration(meta.duration_ms)}; {duration(meta.overhead_us / 1000)} outside of the tool</dd>
          <dt>Result from</dt><dd>{sources[meta.source] ?? meta.source}{meta.cache_age_s !== undefined && `, ${duration(meta.cache_age_s * 1000)} old`}</dd>
          <dt>Attempts</dt><dd>{meta.retry_count + 1}</dd>
          <dt>Cost</dt><dd>{usd(meta.cost_usd)}</dd>
          <dt>Network</dt><dd>{bytes(meta.network_bytes_sent)} sent, {bytes(meta.network_bytes_received)} received</dd>
          {meta.truncated && <><dt>Cut</dt><dd>The result was too long and was cut</dd></>}
          {meta.fallback && <><dt>Fallback</dt><dd><Link href={`/calls/${encodeURIComponent(meta.fallback.invocation_id)}`}><Text most={200}>{meta.fallback.tool_id}</Text></Link> {meta.fallback.tool_version}: <Text most={500}>{meta.fallback.reason}</Text></dd></>}
          {meta.secrets && meta.secrets.length > 0 && <><dt>Secrets</dt><dd>{meta.secrets.map((s, i) => <div key={i}><Text mono most={80}>{s.secret_hash.slice(0, 19)}</Text> {[s.scope && `of the ${s.scope}`, s.store && `from ${s.store}`, s.code].filter(Boolean).join(', ')}</div>)}</dd></>}
          {meta.signature && <><dt>Signature</dt><dd>{meta.signature.algorithm}, key <Text mono>{meta.signature.key_id}</Text></dd></>}
          {meta.trace_id && <><dt>Trace</dt><dd>{meta.trace_url ? <Outside href={meta.trace_url}><Text mono>{meta.trace_id}</Text></Outside> : <Text mono>{meta.trace_id}</Text>}</dd></>}
        </>}
        {call.call_id && <><dt>Call id</dt><dd title="of tool, version, arguments and ordinal"><Text mono>{call.call_id}</Text></dd></>}
      </dl>
    </aside>
  )
}

const sources: Record<string, string> = { executed: 'the tool', cache: 'the cache', replay: 'an earlier call with the same key' }
