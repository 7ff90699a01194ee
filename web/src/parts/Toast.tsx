import { useSyncExternalStore } from 'react'
import { announce } from '../core/announce'
import { problem } from '../core/problem'
import { Icon } from './Icon'
import { Text } from './Text'

type Tone = 'ok' | 'bad' | 'info'
interface Message { id: number; text: string; tone: Tone }
let messages: Message[] = []
let next = 1
const listeners = new Set<() => void>()

function set(list: Message[]) {
  messages = list
  for (const tell of listeners) tell()
}

const drop = (id: number) => set(messages.filter((m) => m.id !== id))

/** Says for some seconds what was done. What failed stays until it is closed. */
export function toast(text: string, tone: Tone = 'ok') {
  const id = next++
  set([...messages.slice(-3), { id, text, tone }])
  announce(text, tone === 'bad' ? 'assertive' : 'polite')
  if (tone !== 'bad') setTimeout(() => drop(id), 6000)
}

/** Says why something failed. */
export function toastProblem(err: unknown) {
  const p = problem(err)
  toast(`${p.title}${p.code ? ` (${p.code})` : ''}: ${p.detail}`, 'bad')
}

export function Toasts() {
  const list = useSyncExternalStore((tell) => { listeners.add(tell); return () => listeners.delete(tell) }, () => messages)
  return (
    <div className="toasts" role="region" aria-label="Messages" hidden={list.length === 0}>
      {list.map((m) => (
        <div key={m.id} className={`toast ${m.tone}`}>
          <Icon name={m.tone === 'ok' ? 'check' : m.tone === 'bad' ? 'cross' : 'info'} />
          <Text most={500}>{m.text}</Text>
          <button type="button" aria-label="Close the message" onClick={() => drop(m.id)}><Icon name="cross" /></button>
        </div>
      ))}
    </div>
  )
}
