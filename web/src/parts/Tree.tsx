import { useState } from 'react'
import { Exact } from '../core/exact'
import { Icon } from './Icon'
import { Text } from './Text'

const step = 1000

/** A value as a tree that opens level by level. */
export function Tree({ value, name, open = true }: { value: unknown; name?: string; open?: boolean }) {
  return <div className="tree"><Node name={name} value={value} start={open ? 2 : 0} /></div>
}

function Node({ name, value, start }: { name?: string; value: unknown; start: number }) {
  const [open, setOpen] = useState(start > 0)
  const [most, setMost] = useState(step)
  const key = name !== undefined && <span className="key"><Text most={200}>{name}</Text>: </span>
  if (typeof value !== 'object' || value === null || value instanceof Exact) return <div className="leaf">{key}<Leaf value={value} /></div>
  const entries = Array.isArray(value) ? value.length : Object.keys(value).length
  const what = Array.isArray(value) ? `[${entries}]` : `{${entries}}`
  if (entries === 0) return <div className="leaf">{key}<span className="soft">{Array.isArray(value) ? '[]' : '{}'}</span></div>
  return (
    <div>
      <button type="button" className="twist" aria-expanded={open} onClick={() => setOpen(!open)}>
        <Icon name={open ? 'down' : 'right'} size={12} />{key || <span className="key">value </span>}<span className="soft">{what}</span>
      </button>
      {open && (
        <ul>
          {Object.entries(value).slice(0, most).map(([k, v]) => <li key={k}><Node name={k} value={v} start={start - 1} /></li>)}
          {entries > most && <li><button type="button" className="more" onClick={() => setMost(most + step)}>{entries - most} more</button></li>}
        </ul>
      )}
    </div>
  )
}

function Leaf({ value }: { value: unknown }) {
  if (typeof value === 'string') return <span className="string"><Text most={2000}>{value}</Text></span>
  return <span className="literal">{value === undefined ? 'absent' : String(value)}</span>
}
