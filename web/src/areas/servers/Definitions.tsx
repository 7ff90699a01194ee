import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { Link } from 'wouter'
import { api, must } from '../../core/api'
import { parse, write } from '../../core/exact'
import { count, number } from '../../core/format'
import type { components } from '../../core/schema'
import { may } from '../../core/session'
import { Badge, type Tone } from '../../parts/Badge'
import { Button } from '../../parts/Button'
import { Confirm } from '../../parts/Dialog'
import { Diff } from '../../parts/Diff'
import { Json } from '../../parts/Json'
import { Empty, States } from '../../parts/States'
import { Text } from '../../parts/Text'
import { toast, toastProblem } from '../../parts/Toast'
import { digests, toReview, type Tool } from './model'
import { Wide } from '../system/Wide'

type Plan = components['schemas']['ServerPlan']

/** What a server offers now, against what is pinned. */
export function Definitions({ name }: { name: string }) {
  const queries = useQueryClient()
  const [busy, setBusy] = useState(false)
  const [accepts, setAccepts] = useState<Tool[]>()
  const query = useQuery({ queryKey: ['servers', name, 'diff'], queryFn: () => must(api.GET('/api/v1/servers/{name}/diff', { params: { path: { name } } })), staleTime: Infinity, retry: false, refetchOnWindowFocus: false })
  const again = async () => {
    await queries.invalidateQueries({ queryKey: ['servers', name, 'diff'] })
    void queries.invalidateQueries({ queryKey: ['servers'], exact: true })
    void queries.invalidateQueries({ queryKey: ['servers', name], exact: true })
  }
  async function read() {
    setBusy(true)
    try {
      await must(api.POST('/api/v1/servers/{name}/refresh', { params: { path: { name } } }))
      await again()
    } catch (err) {
      toastProblem(err)
    } finally {
      setBusy(false)
    }
  }
  async function accept(tools: Tool[]) {
    const done = await must(api.POST('/api/v1/servers/{name}/accept', { params: { path: { name } }, body: { tools: tools.map((t) => t.tool_id), expected: digests(tools) } }))
    toast(`${count(done.published, 'version')} published`)
    await again()
  }
  return (
    <div className="stack">
      <div className="row-of">
        <span className="soft grow">Read from the server as it is now. Accepting takes over exactly what is shown here.</span>
        <Button busy={busy || query.isFetching} onClick={read}>Read again</Button>
      </div>
      <States query={query} empty={(plan) => plan.tools.length === 0 && plan.refused.length === 0 && <Empty title="It offers no tools">Its list of tools is empty.</Empty>}>
        {(plan) => <PlanView plan={plan} accept={setAccepts} changed={again} />}
      </States>
      <Confirm title={accepts?.length === 1 ? `Accept ${accepts[0]!.tool_id}?` : `Accept ${count(accepts?.length ?? 0, 'tool')}?`} action="Accept" open={accepts !== undefined} onClose={() => setAccepts(undefined)} onConfirm={() => accept(accepts ?? [])}>
        <p>What is shown here becomes the next version, and agents can call it. If the server offers something else by now, nothing is accepted.</p>
        {accepts?.some((t) => t.findings?.some((f) => f.severity === 'high')) && <p className="banner bad">There are grave findings. They rarely have an honest explanation.</p>}
        {accepts && accepts.length > 1 && <ul>{accepts.map((t) => <li key={t.tool_id}><Text most={120}>{t.tool_id}</Text></li>)}</ul>}
      </Confirm>
    </div>
  )
}

function PlanView({ plan, accept, changed }: { plan: Plan; accept: (tools: Tool[]) => void; changed: () => Promise<void> }) {
  const review = toReview(plan.tools)
  const rest = plan.tools.filter((t) => !review.includes(t))
  return (
    <>
      {plan.warnings.map((w, i) => <p key={i} className="banner warn"><Text>{w}</Text></p>)}
      {review.length > 0 ? (
        <section className="stack" aria-label="To review">
          <div className="row-of"><h2 className="grow">To review</h2>{may('servers:admin') && review.length > 1 && <Button tone="primary" onClick={() => accept(review)}>Accept all {number(review.length)}</Button>}</div>
          {review.map((t) => <ToolCard key={t.tool_id} tool={t} accept={accept} changed={changed} />)}
        </section>
      ) : <p className="banner ok">All that it offers is what is pinned.</p>}
      {plan.refused.length > 0 && (
        <section className="stack">
          <h2>Refused</h2>
          <ul>{plan.refused.map((r) => <li key={r.index}><strong><Text most={200}>{r.tool_id ?? r.tool ?? `Definition ${r.index + 1}`}</Text></strong>: <Text>{r.reason}</Text></li>)}</ul>
        </section>
      )}
      {rest.length > 0 && (
        <section className="stack" aria-label="Pinned">
          <h2>Pinned</h2>
          <Wide label="Pinned tools">
            <thead><tr><th scope="col">Tool</th><th scope="col">Version</th><th scope="col">State</th><th scope="col">Digest</th><th scope="col"><span className="sr">Action</span></th></tr></thead>
            <tbody>
              {rest.map((t) => (
                <tr key={t.tool_id}>
                  <td><Link href={`/tools/${encodeURIComponent(t.tool_id)}`}><Text most={120}>{t.tool_id}</Text></Link></td><td className="mono">{t.version}</td><td><ToolState state={t.state} /></td>
                  <td className="servers-digest"><Text mono>{t.digest}</Text></td><td className="end"><HoldButton tool={t} changed={changed} /></td>
                </tr>
              ))}
            </tbody>
          </Wide>
        </section>
      )}
    </>
  )
}

const states: Record<string, { tone: Tone; word: string }> = {
  published: { tone: 'ok', word: 'Published' }, held: { tone: 'warn', word: 'Held' }, pending: { tone: 'warn', word: 'Not accepted yet' }, blocked: { tone: 'bad', word: 'Blocked' },
}

function ToolState({ state }: { state: string }) {
  const look = states[state] ?? { tone: 'soft' as const, word: state }
  return <Badge tone={look.tone}>{look.word}</Badge>
}

const changes: Record<string, string> = { new: 'New', patch: 'Words changed', minor: 'It allows more', major: 'It breaks callers', gone: 'Not offered any more', unchanged: 'Unchanged' }
const kinds: Record<string, Tone> = { breaking: 'bad', additive: 'info', patch: 'soft' }
const graves: Record<string, Tone> = { high: 'bad', medium: 'warn', low: 'info' }

function ToolCard({ tool: t, accept, changed }: { tool: Tool; accept: (tools: Tool[]) => void; changed: () => Promise<void> }) {
  return (
    <article className="card stack" aria-label={t.tool_id}>
      <div className="row-of servers-tool">
        <h3 className="grow"><Text most={120}>{t.tool_id}</Text> <span className="soft mono">{t.version}</span></h3>
        <ToolState state={t.state} /><Badge tone={t.change === 'major' || t.change === 'gone' ? 'bad' : 'info'}>{changes[t.change] ?? t.change}</Badge>
        <HoldButton tool={t} changed={changed} />
        {may('servers:admin') && t.state !== 'blocked' && <Button tone="primary" onClick={() => accept([t])}>Accept</Button>}
      </div>
      {t.findings && t.findings.length > 0 && (
        <section aria-label="Findings">
          <h4>Findings</h4>
          <ul className="servers-findings">
            {t.findings.map((f, i) => (
              <li key={i}><Badge tone={graves[f.severity] ?? 'warn'}>{f.severity}</Badge> <Text>{f.message}</Text> <code><Text most={300}>{f.pointer}</Text></code>{f.text && <blockquote><Text most={300}>{f.text}</Text></blockquote>}</li>
            ))}
          </ul>
        </section>
      )}
      {t.changes?.map((c, i) => (
        <section key={i} className="stack" aria-label={`Change at ${c.pointer || 'the definition'}`}>
          <div className="row-of"><Badge tone={kinds[c.kind] ?? 'soft'}>{c.kind}</Badge><code><Text most={300}>{c.pointer || '(the whole definition)'}</Text></code>{c.message && <Text most={500}>{c.message}</Text>}</div>
          {c.op && <Diff before={c.op === 'added' ? undefined : pretty(c.old)} after={c.op === 'removed' ? undefined : pretty(c.new)} beforeLabel="Pinned" afterLabel="Offered now" />}
        </section>
      ))}
      {t.definition !== undefined && <Json value={t.definition} label={`Definition of ${t.tool_id}`} />}
      {t.change === 'gone' && <p>The server does not offer it any more. It is held until it does, or until this is accepted, which blocks it.</p>}
    </article>
  )
}

// pretty breaks JSON into lines, so that long values can be compared.
function pretty(value: string | undefined): string {
  if (value === undefined || !/^[[{]/.test(value)) return value ?? ''
  try {
    return write(parse(value))
  } catch {
    return value
  }
}

// HoldButton holds a published tool, or lets go of one that an administrator holds.
function HoldButton({ tool: t, changed }: { tool: Tool; changed: () => Promise<void> }) {
  const [open, setOpen] = useState<'hold' | 'letGo'>()
  // One whose definition changed is held for that: it is accepted, not let go.
  if (!may('catalog:admin') || (t.state !== 'published' && (t.state !== 'held' || t.change !== 'unchanged'))) return null
  const held = t.state === 'held'
  return (
    <>
      <Button onClick={() => setOpen(held ? 'letGo' : 'hold')}>{held ? 'Let go' : 'Hold'}</Button>
      <Confirm title={`Hold ${t.tool_id}?`} action="Hold" tone="bad" reason="required" open={open === 'hold'} onClose={() => setOpen(undefined)} onConfirm={async (reason) => {
        await must(api.PUT('/api/v1/tools/{tool_id}/versions/{version}/hold', { params: { path: { tool_id: t.tool_id, version: t.version } }, body: { reason } }))
        toast(`${t.tool_id} is held`)
        await changed()
      }}><p>It stays listed, and calls are refused with your reason until it is let go.</p></Confirm>
      <Confirm title={`Let go of ${t.tool_id}?`} action="Let go" open={open === 'letGo'} onClose={() => setOpen(undefined)} onConfirm={async () => {
        await must(api.DELETE('/api/v1/tools/{tool_id}/versions/{version}/hold', { params: { path: { tool_id: t.tool_id, version: t.version } } }))
        toast(`${t.tool_id} can be called again`)
        await changed()
      }}><p>This ends a hold of an administrator. What is held because its definition changed is accepted instead.</p></Confirm>
    </>
  )
}
