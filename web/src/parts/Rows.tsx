import { useVirtualizer } from '@tanstack/react-virtual'
import { useEffect, useId, useRef, useState, type KeyboardEvent, type ReactNode } from 'react'
import { useLocation, Link } from 'wouter'
import { useShortcuts } from '../core/keys'

export interface Column<T> {
  title: string
  /** A track of a CSS grid, such as "8rem" or "minmax(10rem, 2fr)"; default 1fr. */
  width?: string
  align?: 'end'
  /** false: not on telephones. */
  phone?: boolean
  cell: (row: T) => ReactNode
}

interface Props<T> {
  /** What the rows are, for screen readers. */
  label: string
  columns: Column<T>[]
  count: number
  /** The row at the index; undefined while it is being fetched. */
  row: (index: number) => T | undefined
  rowKey: (row: T) => string
  /** Where a row leads. Its first column is the link. */
  href?: (row: T) => string
  /** Which rows are to be seen. */
  onRange?: (first: number, last: number) => void
  rowHeight?: number
  /** Key of the row that is open beside. */
  chosen?: string
}

/**
 * Rows of which only those are drawn that can be seen: 10,000 are no slower than 10. Arrows, j and k, Home, End and the
 * page keys move, Enter opens.
 */
export function Rows<T>({ label, columns, count, row, rowKey, href, onRange, rowHeight, chosen }: Props<T>) {
  const phone = usePhone()
  const height = rowHeight ?? (phone ? 48 : 36)
  const shown = phone ? columns.filter((column) => column.phone !== false) : columns
  const scroller = useRef<HTMLDivElement>(null)
  const [active, setActive] = useState(0)
  const wanted = useRef(false)
  const [, moved] = useState(0)
  const [, navigate] = useLocation()
  const id = useId()
  const virtual = useVirtualizer({ count, getScrollElement: () => scroller.current, estimateSize: () => height, overscan: 8, useFlushSync: false })
  const items = virtual.getVirtualItems()
  const first = items[0]?.index ?? 0
  const last = items.at(-1)?.index ?? 0
  useEffect(() => { virtual.measure() }, [height, virtual])
  useEffect(() => { onRange?.(first, last) }, [onRange, first, last])
  const current = Math.min(active, Math.max(0, count - 1))
  useEffect(() => {
    if (!wanted.current) return
    const element = document.getElementById(`${id}-${current}`)
    if (!element) return
    wanted.current = false
    element.focus({ preventScroll: true })
  })

  function go(to: number) {
    const next = Math.max(0, Math.min(count - 1, to))
    wanted.current = true
    setActive(next)
    moved((n) => n + 1) // also where the row stays the same, to focus it
    virtual.scrollToIndex(next)
  }
  function open(index: number) {
    const one = row(index)
    if (one !== undefined && href) navigate(href(one))
  }
  useShortcuts([
    { keys: 'j', does: `Next of ${label}`, run: () => go(wanted.current || scroller.current?.contains(document.activeElement) ? current + 1 : current) },
    { keys: 'k', does: `Previous of ${label}`, run: () => go(current - 1) },
  ])
  function onKeyDown(event: KeyboardEvent) {
    const page = Math.max(1, Math.floor((scroller.current?.clientHeight ?? 400) / height) - 2)
    const to: Record<string, number> = { ArrowDown: current + 1, ArrowUp: current - 1, Home: 0, End: count - 1, PageDown: current + page, PageUp: current - page }
    if (event.key in to) {
      event.preventDefault()
      go(to[event.key]!)
    } else if (event.key === 'Enter' && event.target instanceof HTMLElement && event.target.role === 'row') {
      event.preventDefault()
      open(current)
    }
  }

  const template = { gridTemplateColumns: shown.map((column) => column.width ?? 'minmax(0, 1fr)').join(' ') }
  return (
    <div className="rows" role="grid" aria-label={label} aria-rowcount={count + 1} aria-colcount={shown.length} ref={scroller} onKeyDown={onKeyDown} style={{ height: virtual.getTotalSize() + 34 }} tabIndex={count === 0 ? 0 : -1}>
      <div role="rowgroup" className="head">
        <div role="row" aria-rowindex={1} style={template}>
          {shown.map((column) => <div key={column.title} role="columnheader" className={column.align}>{column.title}</div>)}
        </div>
      </div>
      <div role="rowgroup" style={{ height: virtual.getTotalSize(), position: 'relative' }}>
        {items.map((item) => {
          const one = row(item.index)
          const key = one === undefined ? undefined : rowKey(one)
          return (
            <div key={item.index} id={`${id}-${item.index}`} role="row" aria-rowindex={item.index + 2} aria-selected={chosen !== undefined ? key === chosen : undefined} aria-busy={one === undefined || undefined}
              className={href ? 'row opens' : 'row'} tabIndex={item.index === current ? 0 : -1}
              style={{ ...template, height, transform: `translateY(${item.start}px)` }}
              onFocus={() => { if (active !== item.index) setActive(item.index) }}
              onClick={(event) => { if (!(event.target instanceof Element && event.target.closest('a,button,input,label,select')) && getSelection()?.isCollapsed !== false) open(item.index) }}>
              {shown.map((column, i) => (
                <div key={column.title} role="gridcell" className={column.align}>
                  {one === undefined ? <span className="bone" /> : i === 0 && href ? <Link href={href(one)} tabIndex={-1}>{column.cell(one)}</Link> : column.cell(one)}
                </div>
              ))}
            </div>
          )
        })}
      </div>
    </div>
  )
}

const narrow = window.matchMedia('(max-width: 639px)')

/** Whether the window is as narrow as a telephone. */
export function usePhone(): boolean {
  const [is, set] = useState(narrow.matches)
  useEffect(() => {
    const change = () => set(narrow.matches)
    narrow.addEventListener('change', change)
    return () => narrow.removeEventListener('change', change)
  }, [])
  return is
}
