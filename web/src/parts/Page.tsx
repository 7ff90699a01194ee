import { useEffect, useRef, type ReactNode } from 'react'
import { Link, useLocation } from 'wouter'
import { useTitle } from '../core/title'
import { Text } from './Text'

export interface Tab { href: string; label: string; count?: number }

/** What is on a page: its title, what can be done, and views of it that have links of their own. */
export function Page({ title, actions, tabs, current, badges, lead, children }: {
  title: string
  actions?: ReactNode
  tabs?: Tab[]
  /** The tab that is shown, where its path does not say it. */
  current?: string
  badges?: ReactNode
  /** A sentence below the title. */
  lead?: ReactNode
  children: ReactNode
}) {
  const [path] = useLocation()
  const heading = useRef<HTMLHeadingElement>(null)
  useTitle(title)
  // A screen reader begins at the title of the page that was gone to; the first page is read from its start.
  useEffect(() => {
    if (moved) heading.current?.focus({ preventScroll: true })
    return () => { moved = true }
  }, [path])
  return (
    <div className="page">
      <header>
        <div className="title">
          <h1 ref={heading} tabIndex={-1}><Text most={200}>{title}</Text></h1>
          {badges}
        </div>
        {actions && <div className="actions">{actions}</div>}
      </header>
      {lead && <p className="lead">{lead}</p>}
      {tabs && (
        <nav className="tabs" aria-label="Views">
          {tabs.map((tab) => (
            <Link key={tab.href} href={tab.href} aria-current={(current ?? path) === (current === undefined ? tab.href.split('?')[0] : tab.href) ? 'page' : undefined}>
              {tab.label}{tab.count !== undefined && <span className="count">{tab.count}</span>}
            </Link>
          ))}
        </nav>
      )}
      {children}
    </div>
  )
}

let moved = false
