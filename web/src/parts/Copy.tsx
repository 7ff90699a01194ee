import { useState } from 'react'
import { announce } from '../core/announce'
import { Button } from './Button'

/** Copies a text. */
export function Copy({ text, label = 'Copy' }: { text: string; label?: string }) {
  const [done, setDone] = useState(false)
  async function copy() {
    try {
      await navigator.clipboard.writeText(text)
    } catch {
      announce('The browser does not allow copying', 'assertive')
      return
    }
    setDone(true)
    announce('Copied')
    setTimeout(() => setDone(false), 2000)
  }
  return <Button tone="quiet" icon={done ? 'check' : 'copy'} onClick={copy}>{done ? 'Copied' : label}</Button>
}
