import { useEffect, useMemo, useRef, useState } from 'react'
import { Link } from 'wouter'
import { announce } from '../../core/announce'
import { api, must } from '../../core/api'
import { parse } from '../../core/exact'
import { problem, type Problem } from '../../core/problem'
import { stream } from '../../core/stream'
import { Badge } from '../../parts/Badge'
import { Button } from '../../parts/Button'
import { Check } from '../../parts/Field'
import { ProblemView } from '../../parts/States'
import { Strip } from '../../parts/Strip'
import { Text } from '../../parts/Text'
import { flat } from './flat'
import { Form } from './form/Form'
import { start } from './form/schema'
import { faultsOf, json, unfinished, type Fault } from './form/value'
import { Result } from './result/Result'
import { manifestOf, type Answer, type Explanation, type Invocation, type ToolAnswer } from './wire'

type Outcome =
  | { is: 'nothing' }
  | { is: 'dry'; run: Explanation }
  | { is: 'refused'; problem: Problem; dry: boolean }
  | { is: 'waits'; id: string; status?: Invocation }
  | { is: 'ended'; answer: Answer }

// Arguments that another page hands over, such as those of an example. They never go through the URL.
let handed: { tool: string; value: unknown } | undefined
/** Hands arguments to the form of a tool, which is opened next. */
export function hand(tool: string, value: unknown) { handed = { tool, value } }

/** The arguments of a call, its dry run, and the call itself. */
export function Call({ tool, from, exact }: { tool: ToolAnswer; from: string; exact: boolean }) {
  const manifest = manifestOf(tool)
  const schema = manifest.parameters_schema ?? {}
  const [value, setValue] = useState<unknown>(() => {
    const given = handed?.tool === tool.tool_id ? handed.value : undefined
    handed = undefined
    return given ?? start(schema, schema) ?? {}
  })
  const [round, setRound] = useState(0) // the form is made anew when its value comes from elsewhere
  const [asJSON, setAsJSON] = useState<string>()
  const [options, setOptions] = useState({ skip_cache: false, require_approval: false, async_mode: false })
  const [busy, setBusy] = useState<'dry' | 'call'>()
  const [outcome, setOutcome] = useState<Outcome>({ is: 'nothing' })
  const [tried, setTried] = useState(false)
  const key = useRef('')
  const stop = useRef(new AbortController())
  const out = useRef<HTMLDivElement>(null)
  useEffect(() => {
    stop.current = new AbortController()
    return () => stop.current.abort()
  }, [])
  const open = useMemo(() => unfinished(value), [value])
  const jsonFault = useMemo(() => (asJSON === undefined ? undefined : faultOf(asJSON)), [asJSON])
  const faults: Fault[] = useMemo(() => [...(tried ? open : []), ...serverFaults(outcome)], [tried, open, outcome])

  function change(next: unknown) {
    setValue(next)
    key.current = ''
    if (outcome.is === 'refused') setOutcome({ is: 'nothing' })
  }
  function edit(text: string) {
    setAsJSON(text)
    key.current = ''
    try { setValue(parse(text)) } catch { /* jsonFault says it */ }
  }

  async function send(dry: boolean) {
    setTried(true)
    if (busy) return
    if (open.length > 0 || jsonFault) {
      announce('The arguments are not complete', 'assertive')
      return
    }
    // The same press sent twice is one call: the key changes with the arguments and with each answer.
    key.current ||= randomKey()
    setBusy(dry ? 'dry' : 'call')
    try {
      const body = `{"tool_id":${JSON.stringify(tool.tool_id)}${exact ? `,"tool_version":${JSON.stringify(tool.version)}` : ''},"parameters":${json(value, '', '')}${dry ? ',"dry_run":true' : ''}${options.skip_cache ? ',"skip_cache":true' : ''},"execution_options":${JSON.stringify({ async_mode: options.async_mode, require_approval: options.require_approval })}}`
      const headers: Record<string, string> = !dry && (manifest.side_effects ?? 'writes') === 'writes' ? { 'Idempotency-Key': key.current } : {}
      const got: unknown = await must(api.POST('/api/v1/tools/invoke', { body: {} as never, bodySerializer: () => body, headers, signal: stop.current.signal }))
      if (!dry) key.current = ''
      if (dry) {
        const run = got as Explanation
        setOutcome({ is: 'dry', run })
        announce(run.would_execute ? 'Dry run: every step passes' : 'Dry run: the call would not be carried out', run.would_execute ? 'polite' : 'assertive')
      } else {
        const answer = got as Answer
        if (answer.polling_info) await follow(answer.invocation_id)
        else ended(answer)
      }
    } catch (err) {
      if (stop.current.signal.aborted) return
      const refused = problem(err)
      if (refused.status !== 0) key.current = '' // without an answer the call may have been made: the next press is the same
      setOutcome({ is: 'refused', problem: refused, dry })
    } finally {
      setBusy(undefined)
      const place = out.current?.getBoundingClientRect()
      if (place && place.top > window.innerHeight * 0.6) out.current?.scrollIntoView({ block: 'start' })
    }
  }

  function ended(answer: Answer) {
    setOutcome({ is: 'ended', answer })
    announce(`The call ended: ${answer.status.replaceAll('_', ' ')}`, answer.status === 'success' ? 'polite' : 'assertive')
  }

  async function follow(id: string) {
    setOutcome({ is: 'waits', id })
    await stream(`api/v1/invocations/${encodeURIComponent(id)}/events`, {
      signal: stop.current.signal,
      onEvent: (event) => {
        if (event.type === 'result') {
          ended(parse(event.data) as Answer)
          return 'stop'
        }
        if (event.type === 'state' || event.type === 'progress') setOutcome({ is: 'waits', id, status: parse(event.data) as Invocation })
      },
    })
  }

  const secret = manifest.redact ?? []
  return (
    <div className="tool-call">
      <section className="stack" aria-label="Arguments">
        <div className="row-of">
          <h2>Arguments</h2>
          <div className="tool-views" role="group" aria-label="Enter the arguments as">
            <button type="button" aria-pressed={asJSON === undefined} disabled={!!jsonFault || (asJSON !== undefined && !isObject(value))} onClick={() => { setAsJSON(undefined); setRound(round + 1) }}>Form</button>
            <button type="button" aria-pressed={asJSON !== undefined} onClick={() => { if (asJSON === undefined) edit(json(value)) }}>JSON</button>
          </div>
          <Examples manifest={manifest} onTake={(input) => { change(input); setRound(round + 1); if (asJSON !== undefined) setAsJSON(json(input)) }} />
        </div>
        {from && <p className="banner info">This is the version of call {flat(from)}. The server does not tell the arguments of earlier calls: enter them again.</p>}
        {asJSON === undefined
          ? <Form key={round} schema={schema} value={value} onChange={change} faults={faults} secret={secret} />
          : (
            <div className="field">
              <label htmlFor="arguments-json">Arguments as JSON</label>
              <textarea id="arguments-json" className="input mono" rows={Math.min(24, Math.max(8, asJSON.split('\n').length + 1))} spellCheck={false} autoComplete="off" value={asJSON} aria-invalid={!!jsonFault || faults.length > 0 || undefined} aria-describedby="arguments-json-fault" onChange={(e) => edit(e.target.value)} />
              <div id="arguments-json-fault">{jsonFault && <p className="error">{jsonFault}</p>}{faults.map((f, i) => <p key={i} className="error"><code>{f.pointer || '/'}</code> <Text most={600}>{f.message}</Text></p>)}</div>
            </div>
          )}
        <details className="tool-options">
          <summary>Options</summary>
          <Check label="Do not use a cached result" checked={options.skip_cache} onChange={(skip_cache) => setOptions({ ...options, skip_cache })} />
          <Check label="Ask a person first" description="The call waits for an approval, even where no rule demands one." checked={options.require_approval} onChange={(require_approval) => setOptions({ ...options, require_approval })} />
          <Check label="In the background" description="It is queued, and can be followed here." checked={options.async_mode} onChange={(async_mode) => setOptions({ ...options, async_mode })} />
        </details>
        <div className="row-of tool-buttons">
          <Button busy={busy === 'dry'} onClick={() => send(true)}>Dry run</Button>
          <Button tone="primary" icon="play" busy={busy === 'call'} onClick={() => send(false)}>{(manifest.side_effects ?? 'writes') === 'writes' ? 'Call (it changes something)' : 'Call'}</Button>
          {tried && (open.length > 0 || jsonFault) && <span className="error" role="alert">Complete the arguments first.</span>}
        </div>
      </section>
      <div ref={out} className="tool-out">{busy && outcome.is !== 'waits' && <Working dry={busy === 'dry'} />}<Shown outcome={outcome} tool={tool.tool_id} onCancelled={() => announce('The call was asked to stop')} /><Wrong faults={serverFaults(outcome)} /></div>
    </div>
  )
}

// Wrong lists all that the server found, also what has no field in the form.
function Wrong({ faults }: { faults: Fault[] }) {
  if (faults.length === 0) return null
  return (
    <section aria-label="What is wrong with the arguments">
      <h3>What is wrong with the arguments</h3>
      <ul className="tool-list">{faults.slice(0, 100).map((f, i) => <li key={i}><code><Text most={300}>{f.pointer || '/'}</Text></code> <Text most={600}>{f.message}</Text></li>)}</ul>
    </section>
  )
}

// Working says that there is no answer yet, after a moment.
function Working({ dry }: { dry: boolean }) {
  const [seconds, setSeconds] = useState(0)
  useEffect(() => {
    const timer = setInterval(() => setSeconds((s) => s + 1), 1000)
    return () => clearInterval(timer)
  }, [])
  return seconds > 0 && <p className="banner info" role="status">{dry ? 'The dry run is being made' : 'The tool is at work'}<span aria-hidden="true">, {seconds} s</span></p>
}

const isObject = (v: unknown) => typeof v === 'object' && v !== null && !Array.isArray(v)

function faultOf(text: string): string | undefined {
  try {
    return isObject(parse(text)) ? undefined : 'Arguments are a JSON object: {"name": value}.'
  } catch (err) {
    return `This is not JSON: ${flat(err instanceof Error ? err.message : String(err))}`
  }
}

// serverFaults are those of the arguments that the server found, by JSON Pointer.
function serverFaults(outcome: Outcome): Fault[] {
  const lists = outcome.is === 'dry' ? outcome.run.steps.map((s) => s.details?.errors)
    : outcome.is === 'refused' ? [outcome.problem.details.errors]
    : outcome.is === 'ended' ? [outcome.answer.error?.details?.errors] : []
  return lists.flatMap(faultsOf)
}

function randomKey(): string {
  return `console-${[...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, '0')).join('')}`
}

function Shown({ outcome, tool, onCancelled }: { outcome: Outcome; tool: string; onCancelled: () => void }) {
  switch (outcome.is) {
    case 'nothing': return <p className="soft">A dry run says what each of the twelve steps would decide, without calling the tool.</p>
    case 'dry': return <DryRun run={outcome.run} />
    case 'refused': return <Refused problem={outcome.problem} dry={outcome.dry} />
    case 'waits': return <Waits id={outcome.id} status={outcome.status} onCancelled={onCancelled} />
    case 'ended': return <Result answer={outcome.answer} tool={tool} />
  }
}

function Refused({ problem: p, dry }: { problem: Problem; dry: boolean }) {
  return (
    <section className="stack" aria-label="Result">
      <div className="problem bad" role="alert">
        <h2>{p.title}</h2>
        <p><Text>{p.detail}</Text></p>
        <p className="soft">{p.code && <>Code <code>{p.code}</code>. </>}{p.retryAfter !== undefined && <>It may be sent again in {p.retryAfter} s.</>}</p>
        {p.invocationId && !dry && <Link href={`/calls/${encodeURIComponent(p.invocationId)}`}>The whole way of this call</Link>}
      </div>
    </section>
  )
}

function DryRun({ run }: { run: Explanation }) {
  const authorise = run.steps.find((s) => s.checks && s.checks.length > 0)
  return (
    <section className="stack" aria-label="Dry run">
      <div className="row-of"><h2>Dry run</h2>{run.would_execute ? <Badge tone="ok">it would be carried out</Badge> : <Badge tone={run.steps.some((s) => s.verdict === 'refuse') ? 'bad' : 'warn'}>{run.steps.some((s) => s.verdict === 'refuse') ? 'it would be refused' : 'it would wait for a person'}</Badge>}</div>
      <Strip label="Steps of the dry run" steps={run.steps.map((s, i) => ({ step: i + 1, name: s.step, outcome: s.verdict, code: s.code, reason: s.reason }))} />
      {run.warnings?.map((w, i) => <p key={i} className="banner warn"><code>{w.code}</code> <Text most={600}>{w.message}</Text></p>)}
      {run.fallback?.tool && <p className="soft">If the tool fails, <Text most={200}>{run.fallback.tool}</Text> would be asked.</p>}
      {authorise?.checks && (
        <details>
          <summary>What was checked of your rights</summary>
          <ul className="tool-checks">{authorise.checks.map((c, i) => <li key={i}><Badge tone={c.allowed ? 'ok' : 'bad'}><Text most={60}>{c.check}</Text></Badge> <Text most={600}>{c.reason}</Text>{c.rule && <> <code><Text most={200}>{c.rule}</Text></code></>}</li>)}</ul>
        </details>
      )}
    </section>
  )
}

const waits: Record<string, string> = { pending_approval: 'It waits for a person who decides.', queued: 'It is queued.', running: 'It runs.', accepted: 'It was accepted.', input_required: 'It waits for an answer to a question of the tool.' }

function Waits({ id, status, onCancelled }: { id: string; status?: Invocation; onCancelled: () => void }) {
  const [failed, setFailed] = useState<Problem>()
  async function cancel() {
    try {
      await api.POST('/api/v1/invocations/{invocation_id}/cancel', { params: { path: { invocation_id: id } } })
      onCancelled()
    } catch (err) {
      setFailed(problem(err))
    }
  }
  const percent = status?.progress_percent
  return (
    <section className="stack" aria-label="The call" aria-live="polite">
      <div className="row-of"><h2>The call</h2><Badge tone="info" icon="wait">{(status?.state ?? 'accepted').replaceAll('_', ' ')}</Badge></div>
      <p>{waits[status?.state ?? 'accepted'] ?? ''} {status?.progress_message && <Text most={400}>{status.progress_message}</Text>}</p>
      {percent !== undefined && <progress max={100} value={percent} aria-label="Progress">{percent} %</progress>}
      <div className="row-of">
        {status?.state === 'pending_approval' && <Link href="/approvals">To the approvals</Link>}
        <Link href={`/calls/${encodeURIComponent(id)}`}>The whole way of this call</Link>
        {status?.cancel_requested ? <span className="soft">It was asked to stop.</span> : <Button tone="bad" onClick={cancel}>Cancel the call</Button>}
      </div>
      {failed && <ProblemView problem={failed} />}
    </section>
  )
}

function Examples({ manifest, onTake }: { manifest: ReturnType<typeof manifestOf>; onTake: (input: unknown) => void }) {
  const list = (manifest.examples ?? []).filter((e) => isObject(e.input))
  if (list.length === 0) return null
  return (
    <select className="input tool-example" aria-label="Begin with an example" value="" onChange={(e) => { const one = list[Number(e.target.value)]; if (one) onTake(one.input) }}>
      <option value="">Begin with an example…</option>
      {list.map((e, i) => <option key={i} value={i}>{flat(e.scenario || e.description || `Example ${i + 1}`, 80)}</option>)}
    </select>
  )
}
