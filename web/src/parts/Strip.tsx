import { useState } from 'react'
import { duration } from '../core/format'
import { Icon, type IconName } from './Icon'
import { Text } from './Text'

/** One of the twelve steps of a call, as a dry run or a call's record says it. */
export interface StripStep {
  step: number
  name: string
  outcome: string
  code?: string
  reason?: string
  took_us?: number
}

const looks: Record<string, { tone: string; icon: IconName; word: string }> = {
  pass: { tone: 'ok', icon: 'check', word: 'passes' },
  refuse: { tone: 'bad', icon: 'cross', word: 'refuses' },
  wait: { tone: 'warn', icon: 'wait', word: 'waits' },
  unknown: { tone: 'info', icon: 'info', word: 'not known before the call' },
  not_run: { tone: 'soft', icon: 'dash', word: 'not reached' },
}

/** The steps of a call as a strip. The first that does not pass is open; each can be opened. */
export function Strip({ steps, label = 'Steps of the call' }: { steps: StripStep[]; label?: string }) {
  const stopped = steps.find((s) => s.outcome === 'refuse') ?? steps.find((s) => s.outcome === 'wait')
  const [chosen, setChosen] = useState<number>()
  const open = steps.find((s) => s.step === (chosen ?? stopped?.step))
  return (
    <div className="strip">
      <ol aria-label={label}>
        {steps.map((s) => {
          const look = looks[s.outcome] ?? looks.unknown!
          return (
            <li key={s.step}>
              <button type="button" className={look.tone} aria-pressed={open === s} onClick={() => setChosen(s.step)}>
                <span className="n">{s.step}</span><Icon name={look.icon} />
                <span className="name">{s.name.replaceAll('_', ' ')}</span>
                <span className="word">{look.word}{s.took_us !== undefined && s.outcome !== 'not_run' && `, ${duration(s.took_us / 1000)}`}</span>
              </button>
            </li>
          )
        })}
      </ol>
      {open && (
        <div className="why" role="status">
          <strong>{open.step}. {open.name.replaceAll('_', ' ')}</strong> {looks[open.outcome]?.word ?? open.outcome}
          {open.code && <> with <code>{open.code}</code></>}{open.reason && <>: <Text>{open.reason}</Text></>}
        </div>
      )}
    </div>
  )
}
