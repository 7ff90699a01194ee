import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { Link } from 'wouter'
import { api, must } from '../../core/api'
import { queries, session } from '../../core/session'
import { Button } from '../../parts/Button'
import { Confirm, Dialog } from '../../parts/Dialog'
import { Select } from '../../parts/Field'
import { Page } from '../../parts/Page'
import { Empty, States } from '../../parts/States'
import { Text } from '../../parts/Text'
import { Time } from '../../parts/Time'
import { toast } from '../../parts/Toast'
import { KeyState, Secret, type Key as Shown } from './Keys'
import { tabs } from './tabs'

/** One key: whom it is for, and its end. */
export default function Key({ id }: { id: string }) {
  const query = useQuery({
    queryKey: ['keys', 'one', id],
    // There is no route for one key; the list has all.
    queryFn: async ({ signal }) => {
      for (let page = 1; ; page++) {
        const data = await must(api.GET('/api/v1/keys', { params: { query: { page, page_size: 200 } }, signal }))
        const found = (data.keys ?? []).find((k) => k.id === id)
        if (found || page * 200 >= data.total_count) return found ?? null
      }
    },
  })
  return (
    <Page title={query.data?.name || query.data?.subject || 'Key'} tabs={tabs()} current="/access" badges={query.data && <KeyState of={query.data} />}>
      <States query={query} empty={query.data === null && <Empty title="There is no such key" action={<Link className="button" href="/access">All keys</Link>} />}>
        {(k) => k && <One k={k} />}
      </States>
    </Page>
  )
}

function One({ k }: { k: Shown }) {
  const [asking, setAsking] = useState<'revoke' | 'rotate'>()
  const [overlap, setOverlap] = useState('3600')
  const [made, setMade] = useState<{ secret: string; signing_secret?: string }>()
  const valid = !k.revoked_at && !(k.expires_at && Date.parse(k.expires_at) < Date.now())
  const own = session().key_id === k.id
  const again = () => queries.invalidateQueries({ queryKey: ['keys'] })
  return (
    <div className="stack">
      <dl className="facts card">
        <dt>Subject</dt><dd><Text>{k.subject}</Text></dd>
        <dt>Id</dt><dd><Text mono>{k.id}</Text>{own && ' (the key of this session)'}</dd>
        <dt>Roles</dt><dd><Text>{(k.roles ?? []).join(', ')}</Text></dd>
        <dt>Scope</dt><dd>{(k.scope ?? []).length === 0 ? 'all that the roles allow' : <Text mono>{(k.scope ?? []).join(' ')}</Text>}</dd>
        {k.workspace && <><dt>Workspace</dt><dd><Text>{k.workspace}</Text></dd></>}
        {k.created_at && <><dt>Made</dt><dd><Time at={k.created_at} />{k.created_by && <> by <Text>{k.created_by}</Text></>}</dd></>}
        <dt>Expires</dt><dd>{k.expires_at ? <Time at={k.expires_at} full /> : 'never'}</dd>
        {k.revoked_at && <><dt>Revoked</dt><dd><Time at={k.revoked_at} full /></dd></>}
        {k.successor && <><dt>Replaced by</dt><dd><Link href={`/access/keys/${encodeURIComponent(k.successor)}`}><Text mono>{k.successor}</Text></Link></dd></>}
        {k.require_signature && <><dt>Requests</dt><dd>must be signed</dd></>}
      </dl>
      <div className="row-of">
        <Link className="button" href={`/access/rights?subject=${encodeURIComponent(k.subject)}`}>What it may call</Link>
        <Link className="button" href={`/audit?agent_id=${encodeURIComponent(k.subject)}`}>What it did</Link>
        {valid && !own && <Button onClick={() => setAsking('rotate')}>Rotate</Button>}
        {valid && own && <span className="soft">This session ends with the key: rotate it with <code>toolkeep keys rotate</code></span>}
        {valid && <Button tone="bad" onClick={() => setAsking('revoke')}>Revoke</Button>}
      </div>
      <Confirm title="Revoke the key?" open={asking === 'revoke'} onClose={() => setAsking(undefined)} action="Revoke" tone="bad" onConfirm={async () => {
        await must(api.DELETE('/api/v1/keys/{key_id}', { params: { path: { key_id: k.id } } }))
        toast('The key was revoked')
        await again()
      }}>
        <p>Requests with it are refused at once, its sessions and streams end. It cannot be made valid again.</p>
        {own && <p><strong>It is the key of this session: you are logged out.</strong></p>}
      </Confirm>
      <Confirm title="Make a new key in its place?" open={asking === 'rotate'} onClose={() => setAsking(undefined)} action="Rotate" onConfirm={async () => {
        const answer = await must(api.POST('/api/v1/keys/{key_id}/rotate', { params: { path: { key_id: k.id } }, body: { overlap_s: Number(overlap) } }))
        setMade(answer as { secret: string; signing_secret?: string })
        await again()
      }}>
        <Select label="This key ends" value={overlap} onChange={setOverlap} options={[{ value: '0', label: 'at once' }, { value: '3600', label: 'in an hour' }, { value: '86400', label: 'in a day' }, { value: '604800', label: 'in a week' }]} />
      </Confirm>
      <Dialog title="The new key" open={!!made} onClose={() => setMade(undefined)}>{made && <Secret secret={made.secret} signing={made.signing_secret} />}</Dialog>
    </div>
  )
}
