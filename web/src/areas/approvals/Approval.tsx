import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { Link } from 'wouter'
import { api, must } from '../../core/api'
import { parse, write } from '../../core/exact'
import { timeOfDay } from '../../core/format'
import { useShortcuts } from '../../core/keys'
import { Problem } from '../../core/problem'
import { queries } from '../../core/session'
import { Badge } from '../../parts/Badge'
import { Button } from '../../parts/Button'
import { Confirm } from '../../parts/Dialog'
import { Diff } from '../../parts/Diff'
import { Field, Select } from '../../parts/Field'
import { Icon } from '../../parts/Icon'
import { Json } from '../../parts/Json'
import { Page } from '../../parts/Page'
import { States } from '../../parts/States'
import { Text } from '../../parts/Text'
import { Time } from '../../parts/Time'
import { toast } from '../../parts/Toast'
import { risks, states, type Approval as Shown } from './wire'
import './approvals.css'

/** One call that waits: what would run, why it is asked about, and the decision. */
export default function Approval({ id }: { id: string }) {
  const query = useQuery({
    queryKey: ['approvals', 'one', id],
    queryFn: async () => (await must(api.GET('/api/v1/approvals/{invocation_id}', { params: { path: { invocation_id: id } } }))) as Shown,
    refetchInterval: (q) => (q.state.data?.state === 'pending' ? 3000 : false),
  })
  const one = query.data
  return (
    <Page title={one?.tool_id ?? 'Approval'} badges={one && <>
      <Badge tone={states[one.state]?.tone}>{states[one.state]?.word ?? one.state}</Badge>
      {one.risk && <Badge tone={risks[one.risk]}>{one.risk} risk</Badge>}
      {one.side_effects && <Badge tone={one.side_effects === 'writes' ? 'warn' : 'soft'}>{one.side_effects}</Badge>}
    </>} actions={<Link className="button" href="/approvals">All approvals</Link>}>
      <States query={query}>{(data) => <One one={data} again={() => query.refetch()} />}</States>
    </Page>
  )
}

function One({ one, again }: { one: Shown; again: () => void }) {
  // What is edited is held against what was seen when the editing began; the server refuses where something else would run.
  const [edited, setEdited] = useState<{ text: string; seen: Shown }>()
  const [asking, ask] = useState<{ what: 'approve' | 'deny'; seen: Shown }>()
  // The question is about what stood on the page when it was opened, whatever another changes meanwhile.
  const setAsking = (what?: 'approve' | 'deny') => ask(what && { what, seen: edited?.seen ?? one })
  const seen = edited?.seen ?? asking?.seen ?? one
  const changed = seen.digest !== one.digest
  let parameters: unknown
  let fault = ''
  if (edited) {
    try {
      parameters = parse(edited.text)
      if (typeof parameters !== 'object' || parameters === null || Array.isArray(parameters)) fault = 'The arguments are a JSON object: { "name": value }'
    } catch (err) {
      fault = err instanceof Error ? err.message : String(err)
    }
  }
  const edit = () => setEdited({ text: write(one.parameters ?? {}), seen: one })
  useShortcuts(one.you_decide ? [
    { keys: 'e', does: 'Edit the arguments', run: edit },
    { keys: 'y', does: 'Approve, after a question', run: () => { if (!fault) setAsking('approve') } },
    { keys: 'n', does: 'Deny, after a question', run: () => setAsking('deny') },
  ] : [])
  return (
    <div className="columns">
      <div className="stack">
        <p className="banner warn"><Icon name="info" /><span><Text>{one.why}</Text>{one.rule && <> (rule <Text>{one.rule}</Text>)</>}</span></p>
        {edited ? (
          <>
            <Field label="Arguments that would run instead" rows={12} mono value={edited.text} onChange={(text) => setEdited({ ...edited, text })} error={fault} autoFocus
              description="They are checked against the tool's schema as the caller's were. Both are kept." />
            <div className="row-of"><Button onClick={() => setEdited(undefined)}>Leave as they were</Button></div>
            {!fault && <Diff before={seen.parameters} after={parameters} beforeLabel="As they are" afterLabel="As you edit them" />}
          </>
        ) : one.parameters !== undefined ? (
          <section className="stack" aria-label="Arguments">
            <h2>What would run</h2>
            <Json value={one.parameters} label="Arguments" />
            {one.you_decide && <div><Button onClick={edit}>Edit</Button></div>}
          </section>
        ) : <p className="soft">The arguments are shown to the caller and to those who decide.</p>}
        {one.asked_parameters !== undefined && (
          <section className="stack" aria-label="Difference"><h2>Edited since it was asked</h2><Diff before={one.asked_parameters} after={one.parameters} beforeLabel="Asked" afterLabel="Would run" /></section>
        )}
        {changed && <p className="banner bad" role="alert"><Icon name="warn" /> What would run was changed by another meanwhile. <Button tone="quiet" onClick={() => setEdited(undefined)}>Show it</Button></p>}
        {one.you_decide && (
          <div className="decide">
            <Button tone="bad" onClick={() => setAsking('deny')}>Deny</Button>
            <Button tone="primary" disabled={fault !== ''} onClick={() => setAsking('approve')}>{edited ? 'Approve as edited' : 'Approve'}</Button>
          </div>
        )}
        {!one.you_decide && one.state === 'pending' && <p className="soft">You are not asked about this call{one.roles && one.roles.length > 0 && <>: those with the role {one.roles.join(' or ')} are</>}.</p>}
      </div>
      <aside className="stack">
        <dl className="facts card">
          <dt>Tool</dt><dd><Text>{one.tool_id}</Text> <span className="soft">{one.tool_version}</span></dd>
          <dt>Agent</dt><dd><Text>{one.agent_id}</Text></dd>
          {one.user_id && <><dt>For</dt><dd><Text>{one.user_id}</Text></dd></>}
          {one.session_id && <><dt>Session</dt><dd><Text mono>{one.session_id}</Text></dd></>}
          <dt>Asked</dt><dd><Time at={one.created_at} /></dd>
          <dt>{one.state === 'pending' ? 'Ends' : 'Ended'}</dt><dd><Time at={one.decided_at ?? one.expires_at} /></dd>
          <dt>Approvals</dt><dd>{one.have} of {one.needed}</dd>
          {one.level > 0 && <><dt>Escalated</dt><dd>{one.level === 1 ? 'once' : `${one.level} times`}</dd></>}
          <dt>Call</dt><dd><Link href={`/calls/${encodeURIComponent(one.invocation_id)}`}><Text mono>{one.invocation_id}</Text></Link></dd>
        </dl>
        {(one.decisions ?? []).map((d, i) => (
          <div key={i} className="card stack">
            <div className="row-of"><Badge tone={states[d.verdict]?.tone}>{d.verdict}</Badge>{d.edited && <Badge tone="info">edited</Badge>}<Time at={d.at} /></div>
            <div>by <Text>{d.by}</Text>{d.on_behalf_of && <> for <Text>{d.on_behalf_of}</Text></>}{d.by_service && ' (the service of approvals.endpoint)'}{d.link_made_by && <>, by a link of <Text>{d.link_made_by}</Text></>}</div>
            {d.reason && <p><Text>{d.reason}</Text></p>}
          </div>
        ))}
      </aside>
      <Decide one={seen} asking={asking?.what} parameters={edited && parameters} onClose={() => setAsking(undefined)} done={() => { setEdited(undefined); again(); void queries.invalidateQueries({ queryKey: ['approvals'] }) }} />
    </div>
  )
}

const hours = [1, 8, 24]

function Decide({ one, asking, parameters, onClose, done }: { one: Shown; asking?: 'approve' | 'deny'; parameters: unknown; onClose: () => void; done: () => void }) {
  const [remember, setRemember] = useState('')
  const path = { invocation_id: one.invocation_id }
  const at = (h: number) => new Date(Date.now() + h * 3_600_000 - 60_000)
  async function decide(reason: string) {
    const said = { digest: one.digest, reason: reason || undefined }
    try {
      if (asking === 'deny') {
        await must(api.POST('/api/v1/approvals/{invocation_id}/deny', { params: { path }, body: said }))
      } else {
        const [what, h] = remember.split(' ')
        await must(api.POST('/api/v1/approvals/{invocation_id}/approve', { params: { path }, body: {
          ...said,
          parameters: parameters as Record<string, unknown> | undefined,
          remember: what ? { for: what as 'arguments' | 'session', until: at(Number(h)).toISOString() } : undefined,
        } }))
      }
    } catch (err) {
      if (err instanceof Problem && err.code === 'E3963') done()
      throw err
    }
    toast(asking === 'deny' ? 'Denied' : 'Approved')
    setRemember('')
    done()
  }
  return (
    <>
      <Confirm title="Deny the call?" open={asking === 'deny'} onClose={onClose} action="Deny" tone="bad" reason="optional" onConfirm={decide}>
        <p>The agent <Text>{one.agent_id}</Text> gets the refusal, and the reason if there is one.</p>
      </Confirm>
      <Confirm title={parameters === undefined ? 'Approve the call?' : 'Approve the call as edited?'} open={asking === 'approve'} onClose={onClose} action="Approve" reason="optional" onConfirm={decide}>
        <p><Text>{one.tool_id}</Text> runs for <Text>{one.agent_id}</Text>{one.needed > 1 && <>, once {one.needed} persons approved</>}.</p>
        {one.needed === 1 && (
          <Select label="Later calls of this agent" value={remember} onChange={setRemember} options={[
            { value: '', label: 'Ask about each' },
            ...hours.map((h) => ({ value: `arguments ${h}`, label: `With the same arguments: allow until ${until(at(h))}` })),
            ...(one.session_id ? hours.map((h) => ({ value: `session ${h}`, label: `All of this session: allow until ${until(at(h))}` })) : []),
          ]} />
        )}
      </Confirm>
    </>
  )
}

function until(at: Date): string {
  const clock = timeOfDay(at).slice(0, 5)
  return at.toDateString() === new Date().toDateString() ? clock : `tomorrow ${clock}`
}
