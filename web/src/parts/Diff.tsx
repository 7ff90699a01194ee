import { useMemo } from 'react'
import { write } from '../core/exact'
import { diffLines, type Line } from './diff'
import { marked } from './Text'

interface Props { before: unknown; after: unknown; beforeLabel?: string; afterLabel?: string; context?: number }

/** Two values or texts side by side. Long equal stretches are left out. */
export function Diff({ before, after, beforeLabel = 'Before', afterLabel = 'After', context = 3 }: Props) {
  const rows = useMemo(() => {
    // A side that is absent has no lines, not an empty one.
    const whole = before === undefined ? asText(after).split('\n').map((line): Line => ({ new: line })) : after === undefined ? asText(before).split('\n').map((line): Line => ({ old: line })) : undefined
    const lines = whole ?? diffLines(asText(before), asText(after))
    const near = new Set<number>()
    lines.forEach((line, i) => { if (line.old !== line.new) for (let k = i - context; k <= i + context; k++) near.add(k) })
    return lines.map((line, i) => ({ ...line, i, shown: near.has(i) }))
  }, [before, after, context])
  if (!rows.some((row) => row.shown)) return <p className="soft">No difference.</p>
  return (
    <div className="diff" role="group" aria-label={`${beforeLabel} and ${afterLabel}`} tabIndex={0}>{/* oxlint-disable-line jsx-a11y/no-noninteractive-tabindex */}
      <table>
        <thead><tr><th scope="col">{beforeLabel}</th><th scope="col">{afterLabel}</th></tr></thead>
        <tbody>
          {rows.map((row) => row.shown ? (
            <tr key={row.i}>
              <Side text={row.old} changed={row.old !== row.new} how="del" />
              <Side text={row.new} changed={row.old !== row.new} how="ins" />
            </tr>
          ) : rows[row.i - 1]?.shown !== false && <tr key={row.i} className="gap"><td colSpan={2}>⋯</td></tr>)}
        </tbody>
      </table>
    </div>
  )
}

function Side({ text, changed, how }: { text?: string; changed: boolean; how: 'ins' | 'del' }) {
  if (text === undefined) return <td className="none" />
  if (!changed) return <td>{marked(text.slice(0, 8000))}</td>
  const Tag = how
  return <td className={how}><Tag>{marked(text.slice(0, 8000))}</Tag></td>
}

function asText(value: unknown): string {
  return typeof value === 'string' ? value : value === undefined ? '' : write(sorted(value))
}

// sorted has the members of objects in the order of their names, so that their order is no difference.
function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted)
  if (typeof value !== 'object' || value === null || 'toJSON' in value) return value
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)).map(([k, v]) => [k, sorted(v)]))
}
