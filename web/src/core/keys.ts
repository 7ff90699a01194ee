import { useEffect, useRef } from 'react'

/** What a key does: its name ("/", "g c", "e"), and words for the list of keys. */
export interface Shortcut { keys: string; does: string; run: () => void }

const off = 'toolkeep.keys'
const active = new Set<{ current: Shortcut[] }>()
let first = ''
let timer = 0

/** Single keys can be switched off, since they are in the way of speech input (WCAG 2.1.4). */
export const shortcuts = {
  on: () => localStorage.getItem(off) !== 'off',
  turn: (on: boolean) => (on ? localStorage.removeItem(off) : localStorage.setItem(off, 'off')),
  all: () => [...active].flatMap((one) => one.current),
}

/** Keys while the component is shown. Nothing happens while text is entered or a dialog is open. */
export function useShortcuts(list: Shortcut[]) {
  const latest = useRef(list)
  latest.current = list
  useEffect(() => { active.add(latest); return () => { active.delete(latest) } }, [])
}

function typing(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
}

document.addEventListener('keydown', (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || !shortcuts.on() || typing(event.target)) return
  if (document.querySelector('[role=dialog],[role=alertdialog]')) return
  const keys = first ? `${first} ${event.key}` : event.key
  first = ''
  clearTimeout(timer)
  // What was mounted last, the page, comes before the frame.
  const one = shortcuts.all().reverse().find((s) => s.keys === keys)
  if (one) {
    event.preventDefault()
    one.run()
  } else if (shortcuts.all().some((s) => s.keys.startsWith(`${keys} `))) {
    first = keys
    timer = window.setTimeout(() => { first = '' }, 1000)
  }
})
