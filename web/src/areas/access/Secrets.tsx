import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { Link } from 'wouter'
import { api, must } from '../../core/api'
import { problem, type Problem } from '../../core/problem'
import type { components } from '../../core/schema'
import { may, queries } from '../../core/session'
import { Badge, type Tone } from '../../parts/Badge'
import { Button } from '../../parts/Button'
import { Confirm, Dialog } from '../../parts/Dialog'
import { Field, Select } from '../../parts/Field'
import { Page } from '../../parts/Page'
import { Empty, ProblemView, States } from '../../parts/States'
import { Text } from '../../parts/Text'
import { Time } from '../../parts/Time'
import { toast } from '../../parts/Toast'
import { scrolls } from '../../parts/scrolls'
import { tabs } from './tabs'

type Secret = components['schemas']['SecretInfo']
const tones: Record<string, Tone> = { ready: 'ok', expired: 'warn', unreadable: 'bad' }

/** Which secrets there are and whether they are ready, never their values. */
export default function Secrets() {
  const query = useQuery({ queryKey: ['secrets'], queryFn: () => must(api.GET('/api/v1/secrets', { params: { query: { page_size: 200 } } })) })
  const [setting, setSetting] = useState(false)
  const [removing, setRemoving] = useState<Secret>()
  return (
    <Page title="Secrets" tabs={tabs()} lead="What tools authenticate with. A value is sealed when it comes in and is never shown again; a tool's manifest names it as secret://NAME."
      actions={<Button tone="primary" onClick={() => setSetting(true)}>Set a secret</Button>}>
      <States query={query} empty={(data) => (data.secrets ?? []).length === 0 && <Empty title="No secret yet">A tool that needs one says so on its page.</Empty>}>
        {(data) => (
          <>
            {data.total_count > (data.secrets ?? []).length && <p className="banner">The first {(data.secrets ?? []).length} of {data.total_count} are shown; the command <code>toolkeep secrets</code> lists all.</p>}
            <div {...scrolls('Secrets')}>
              <table className="table">
                <thead><tr><th scope="col">Name</th><th scope="col">Whose</th><th scope="col">State</th><th scope="col">Expires</th><th scope="col">Set</th><th scope="col">Tools</th><th scope="col"><span className="sr">Actions</span></th></tr></thead>
                <tbody>
                  {(data.secrets ?? []).map((one) => (
                    <tr key={`${one.scope}/${one.user ?? ''}/${one.workspace ?? ''}/${one.name}`}>
                      <td><Text mono>{one.name}</Text></td>
                      <td>{one.scope === 'organisation' ? 'all of the tenant' : <Text>{one.user ?? one.workspace ?? one.scope}</Text>}{one.scope === 'workspace' && <span className="soft"> (workspace)</span>}</td>
                      <td><Badge tone={tones[one.state]}>{one.state}</Badge></td>
                      <td>{one.expires_at ? <Time at={one.expires_at} /> : <span className="soft">never</span>}</td>
                      <td><Time at={one.updated_at} /></td>
                      <td>{(one.tools ?? []).slice(0, 5).map((tool) => <span key={tool}><Link href={`/tools/${encodeURIComponent(tool)}`}><Text most={80}>{tool}</Text></Link> </span>)}{(one.tools ?? []).length > 5 && `and ${(one.tools ?? []).length - 5} more`}</td>
                      <td className="end"><Button tone="quiet" aria-label={`Delete ${one.name}`} onClick={() => setRemoving(one)}>Delete</Button></td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          </>
        )}
      </States>
      {setting && <Set onClose={() => setSetting(false)} />}
      <Confirm title="Delete the secret?" open={!!removing} onClose={() => setRemoving(undefined)} action="Delete" tone="bad" onConfirm={async () => {
        const one = removing!
        await must(api.DELETE('/api/v1/secrets/{name}', { params: { path: { name: one.name }, query: { scope: one.scope, user: one.user, workspace: one.workspace } } }))
        toast('The secret was deleted')
        await queries.invalidateQueries({ queryKey: ['secrets'] })
      }}>
        <p>Tools that name <Text mono>{removing?.name}</Text> are refused until it is set again.</p>
      </Confirm>
    </Page>
  )
}

function Set({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState('')
  const [scope, setScope] = useState<'user' | 'workspace' | 'organisation'>('user')
  const [value, setValue] = useState('')
  const [busy, setBusy] = useState(false)
  const [failed, setFailed] = useState<Problem>()
  async function save() {
    setBusy(true)
    setFailed(undefined)
    try {
      await must(api.PUT('/api/v1/secrets/{name}', { params: { path: { name: name.trim() } }, body: { scope, value } }))
      setValue('')
      toast('The secret was set')
      await queries.invalidateQueries({ queryKey: ['secrets'] })
      onClose()
    } catch (err) {
      setFailed(problem(err))
    } finally {
      setBusy(false)
    }
  }
  return (
    <Dialog title="Set a secret" open onClose={onClose} footer={<><Button onClick={onClose}>Cancel</Button><Button tone="primary" busy={busy} disabled={name.trim() === '' || value === ''} onClick={save}>Set</Button></>}>
      <Field label="Name" value={name} onChange={setName} required autoFocus mono description="a-z, 0-9, dot, hyphen, underscore" />
      <Select label="Whose" value={scope} onChange={(to) => setScope(to as typeof scope)} options={[{ value: 'user', label: 'Mine' }, { value: 'workspace', label: "My key's workspace" }, ...(may('secrets:admin') ? [{ value: 'organisation', label: 'All of the tenant' }] : [])]} />
      <Field label="Value" type="password" value={value} onChange={setValue} required autoComplete="new-password" mono description="It is sealed by the server and never shown again." />
      {failed && <ProblemView problem={failed} />}
    </Dialog>
  )
}
