import { may } from '../../core/session'
import { Badge, type Tone } from '../../parts/Badge'
import { Text } from '../../parts/Text'
import type { Auth } from './wire'

const states: Record<string, Tone> = { active: 'ok', draft: 'info', testing: 'info', published: 'ok', deprecated: 'warn', sunset: 'warn', blocked: 'bad', removed: 'bad' }

export const State = ({ state }: { state: string }) => <Badge tone={states[state] ?? 'soft'}><Text most={40}>{state}</Text></Badge>

const risks: Record<string, Tone> = { low: 'soft', medium: 'warn', high: 'bad', critical: 'bad' }

export const Risk = ({ risk }: { risk?: string }) => (risk ? <Badge tone={risks[risk] ?? 'soft'} icon={risk === 'low' ? 'dot' : 'warn'}><Text most={40}>{risk}</Text> risk</Badge> : null)

const effects: Record<string, string> = { none: 'no effects', reads: 'reads', writes: 'writes' }

export const Effects = ({ effect }: { effect?: string }) => (effect ? <Badge tone={effect === 'writes' ? 'warn' : 'soft'} icon={effect === 'writes' ? 'warn' : 'dot'}><Text most={40}>{effects[effect] ?? effect}</Text></Badge> : null)

const whose: Record<string, string> = { user: 'your own', workspace: "your workspace's", organisation: "the organisation's", server: "the server's" }

/** How a tool stands with its secrets for the one who looks. A shared key is a warning: all who use it look alike to the tool. */
export function AuthBadge({ auth }: { auth: Auth | undefined }) {
  if (!auth) return null
  if (auth.state === 'missing') return <Badge tone="bad">secret missing</Badge>
  if (auth.state === 'expired') return <Badge tone="bad">secret expired</Badge>
  if (auth.state === 'unreadable') return <Badge tone="bad">secret unreadable</Badge>
  if (auth.scope === 'organisation') return <Badge tone="warn">Using organisation key</Badge>
  if (auth.scope === 'server') return <Badge tone="warn">Using server key</Badge>
  return <Badge tone="ok">secret ready</Badge>
}

/** What the state of a tool's secrets means, and what to do. */
export function AuthNote({ auth, tool }: { auth: Auth | undefined; tool: string }) {
  if (!auth) return null
  const shared = auth.state === 'ready' && (auth.scope === 'organisation' || auth.scope === 'server')
  if (auth.state === 'ready' && !shared) return null
  return (
    <div className={`banner ${auth.state === 'ready' ? 'warn' : 'bad'}`} role="note">
      <AuthBadge auth={auth} />
      <span className="grow">{shared
        ? <>Calls use {whose[auth.scope ?? ''] ?? 'a shared'} secret, not your own: whoever runs the tool's service sees all who share it as one. What you do there is recorded here under your name.</>
        : <>
            {auth.state === 'missing' && <>The tool needs a secret ({auth.type}) and has none for you, so calls are refused. </>}
            {auth.state === 'expired' && <>The tool's secret ({auth.type}) has expired, so calls are refused. </>}
            {auth.state === 'unreadable' && <>The tool's secret ({auth.type}) is sealed with a key that this server does not have, so calls are refused. </>}
            {may('secrets:admin')
              ? <>Set it with <code>toolkeep secrets set</code>; <code>toolkeep doctor</code> and <code>toolkeep explain {tool}</code> name the reference.</>
              : <>Ask an administrator of Toolkeep to set it.</>}
          </>}</span>
    </div>
  )
}
