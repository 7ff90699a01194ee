import { useState, type ReactNode } from 'react'

// Characters that do not show, or that turn the direction of what follows. Joiners and selectors of emoji are left.
const hidden = /[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\u{e0000}-\u{e0fff}]|(?<![\p{Extended_Pictographic}\u{1f3fb}-\u{1f3ff}\ufe0f#*0-9])[\u200d\ufe0f]/gu // oxlint-disable-line no-control-regex

/** The text's parts: what shows, and marks of what does not. */
export function marked(text: string): ReactNode[] {
  const parts: ReactNode[] = []
  let from = 0
  for (const found of text.matchAll(hidden)) {
    if (found.index > from) parts.push(text.slice(from, found.index))
    const code = (found[0].codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')
    parts.push(<span key={found.index} className="mark" title={`hidden character U+${code}`}>U+{code}</span>)
    from = found.index + found[0].length
  }
  if (from < text.length) parts.push(text.slice(from))
  return parts
}

/** Text of others: hidden characters are marked, and more than `most` characters come when asked for. */
export function Text({ children, most = 8000, mono }: { children: string | undefined | null; most?: number; mono?: boolean }) {
  const [all, setAll] = useState(false)
  const text = children ?? ''
  const cut = !all && text.length > most
  return (
    <span className={mono ? 'text mono' : 'text'} dir="auto">
      {marked(cut ? text.slice(0, most) : text)}
      {cut && <button type="button" className="more" onClick={() => setAll(true)}>… show all {text.length.toLocaleString('en')} characters</button>}
    </span>
  )
}

/** A link to another site, if it is one: http and https alone, and it says where it goes. */
export function Outside({ href, children }: { href: string; children?: ReactNode }) {
  let url: URL | undefined
  try {
    url = new URL(href)
  } catch {
    url = undefined
  }
  if (!url || !/^https?:$/.test(url.protocol)) return <Text mono>{href}</Text>
  return <a href={url.href} target="_blank" rel="noreferrer noopener nofollow">{children ?? <Text>{href}</Text>} <span className="soft">({url.host})</span></a>
}
