import type { ReactNode } from 'react'
import { Icon, type IconName } from './Icon'

export type Tone = 'ok' | 'warn' | 'bad' | 'info' | 'soft'
const icons: Record<Tone, IconName> = { ok: 'check', warn: 'warn', bad: 'cross', info: 'info', soft: 'dot' }

/** A state in a word, with a sign, so that its colour is never all that says it. */
export function Badge({ tone = 'soft', icon, title, children }: { tone?: Tone; icon?: IconName; title?: string; children: ReactNode }) {
  return <span className={`badge ${tone}`} title={title}><Icon name={icon ?? icons[tone]} size={12} />{children}</span>
}
