import type { ReactElement } from 'react'
import { marked } from '../../parts/Text'

/** Text of others where only plain text can stand, as in options and placeholders: hidden characters are named, long text is cut. */
export function flat(text: string, most = 200): string {
  const shown = marked(text.slice(0, most)).map((part) => (typeof part === 'string' ? part : `[${[(part as ReactElement<{ children: string | string[] }>).props.children].flat().join('')}]`)).join('')
  return text.length > most ? `${shown}…` : shown
}
