import { useState } from 'react'
import { Redirect } from 'wouter'
import { api, must } from '../../core/api'
import { usePages } from '../../core/pages'
import { problem, type Problem } from '../../core/problem'
import type { components } from '../../core/schema'
import { may, queries } from '../../core/session'
import { Badge } from '../../parts/Badge'
import { Button } from '../../parts/Button'
import { Copy } from '../../parts/Copy'
import { Dialog } from '../../parts/Dialog'
import { Check, Field } from '../../parts/Field'
import { Page } from '../../parts/Page'
import { Rows } from '../../parts/Rows'
import { Empty, ProblemView, States } from '../../parts/States'
import { Text } from '../../parts/Text'
import { Time } from '../../parts/Time'
import { tabs } from './tabs'

export type Key = components['schemas']['Key']

/** Who may come in, and until when. */
export default function Keys() {
  return may('keys:admin') ? <List /> : <Redirect to="/access/secrets" replace />
}

function List() {
  const [making, setMaking] = useState(false)
  const list = usePages<Key>(['keys'], async (page, size, signal) => {
    const data = await must(api.GET('/api/v1/keys', { params: { query: { page, page_size: size } }, signal }))
    return { rows: data.keys ?? [], total: data.total_count }
  })
  return (
    <Page title="Access" tabs={tabs()} lead="API keys of this tenant. Each agent, program and person has one of its own, so that its calls can be told apart and it can be revoked alone."
      actions={<Button tone="primary" onClick={() => setMaking(true)}>Make a key</Button>}>
      <States query={list.first} empty={list.count === 0 && <Empty title="No key yet" />}>
        {() => (
          <Rows<Key> label="keys" count={list.count} row={list.row} onRange={list.onRange} rowKey={(k) => k.id} href={(k) => `/access/keys/${encodeURIComponent(k.id)}`}
            columns={[
              { title: 'Subject', width: 'minmax(0, 1.2fr)', cell: (k) => <Text most={100}>{k.subject}</Text> },
              { title: 'Name', width: 'minmax(0, 1fr)', phone: false, cell: (k) => <Text most={100}>{k.name}</Text> },
              { title: 'Roles', width: 'minmax(0, 1fr)', cell: (k) => <Text most={100}>{(k.roles ?? []).join(', ')}</Text> },
              { title: 'Scope', width: 'minmax(0, 1fr)', phone: false, cell: (k) => (k.scope ?? []).length === 0 ? <span className="soft">all that the roles allow</span> : <Text most={100}>{(k.scope ?? []).join(', ')}</Text> },
              { title: 'State', width: '110px', cell: (k) => <KeyState of={k} /> },
              { title: 'Expires', width: '110px', align: 'end', phone: false, cell: (k) => k.expires_at ? <Time at={k.expires_at} /> : <span className="soft">never</span> },
            ]} />
        )}
      </States>
      <Make open={making} onClose={() => setMaking(false)} />
    </Page>
  )
}

export function KeyState({ of: k }: { of: Key }) {
  if (k.revoked_at) return <Badge tone="bad">revoked</Badge>
  if (k.expires_at && Date.parse(k.expires_at) < Date.now()) return <Badge tone="soft">expired</Badge>
  return <Badge tone="ok">valid</Badge>
}

/** A key as it was made. It is shown this once, and kept nowhere in the page. */
export function Secret({ secret, signing }: { secret: string; signing?: string }) {
  return (
    <>
      <p>Copy it now: it is not shown again.</p>
      <pre className="card"><code>{secret}</code></pre>
      <div><Copy text={secret} label="Copy the key" /></div>
      {signing && <><p>Each request with it is signed with this:</p><pre className="card"><code>{signing}</code></pre><div><Copy text={signing} label="Copy the signing secret" /></div></>}
    </>
  )
}

const words = (text: string) => text.split(/[\s,]+/).filter(Boolean)

function Make({ open, onClose }: { open: boolean; onClose: () => void }) {
  const [subject, setSubject] = useState('')
  const [name, setName] = useState('')
  const [roles, setRoles] = useState('agent')
  const [scope, setScope] = useState('')
  const [days, setDays] = useState('90')
  const [signed, setSigned] = useState(false)
  const [busy, setBusy] = useState(false)
  const [failed, setFailed] = useState<Problem>()
  const [made, setMade] = useState<{ secret: string; signing_secret?: string }>()
  function close() {
    setMade(undefined)
    setFailed(undefined)
    onClose()
  }
  async function make() {
    setBusy(true)
    setFailed(undefined)
    try {
      const expires = days.trim() === '' ? undefined : new Date(Date.now() + Number(days) * 86_400_000).toISOString()
      setMade(await must(api.POST('/api/v1/keys', { body: { subject: subject.trim(), name: name.trim() || undefined, roles: words(roles), scope: words(scope), expires_at: expires, require_signature: signed || undefined } })))
      setSubject('')
      setName('')
      void queries.invalidateQueries({ queryKey: ['keys'] })
    } catch (err) {
      setFailed(problem(err))
    } finally {
      setBusy(false)
    }
  }
  const wrong = days.trim() !== '' && !(Number(days) > 0)
  if (made) return <Dialog title="The key was made" open={open} onClose={close}><Secret secret={made.secret} signing={made.signing_secret} /></Dialog>
  return (
    <Dialog title="Make a key" open={open} onClose={close} footer={<><Button onClick={close}>Cancel</Button><Button tone="primary" busy={busy} disabled={subject.trim() === '' || words(roles).length === 0 || wrong} onClick={make}>Make</Button></>}>
      <Field label="Subject" value={subject} onChange={setSubject} required autoFocus description="Who authenticates with it: an agent, a program, a person." />
      <Field label="Name" value={name} onChange={setName} description="For people." />
      <Field label="Roles" value={roles} onChange={setRoles} required description="admin, publisher, operator, agent, auditor, or own roles" />
      <Field label="Scope" value={scope} onChange={setScope} mono description="Patterns of tools that it is narrowed to, such as weather.*; empty does not narrow." />
      <Field label="Days until it expires" type="number" value={days} onChange={setDays} error={wrong ? 'A number above 0, or nothing for never' : undefined} description="Empty: never." />
      <Check label="Each request with it must be signed" checked={signed} onChange={setSigned} description="Such a key cannot log in here." />
      {failed && <ProblemView problem={failed} />}
    </Dialog>
  )
}
