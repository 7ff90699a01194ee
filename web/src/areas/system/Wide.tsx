import type { ReactNode } from 'react'
import './system.css'

/** A table that scrolls sideways where the window is narrow, also by keyboard. */
export function Wide({ label, children }: { label: string; children: ReactNode }) {
  return <div className="scrolls system-scrolls" role="region" aria-label={label} tabIndex={0}><table className="table system-wide">{children}</table></div> // oxlint-disable-line jsx-a11y/no-noninteractive-tabindex
}
