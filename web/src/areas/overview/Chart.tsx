import { lazy, Suspense, useState } from 'react'
import { time } from '../../core/format'
import { Skeleton } from '../../parts/States'
import type { Series } from './model'

const Plot = lazy(() => import('./Plot'))

/** How the lines of a chart are told apart without their colours. */
export const dashes = [[], [6, 4], [2, 3]]

/** Lines over time, and the same as a table. */
export function Chart({ title, at, series, format }: { title: string; at: number[]; series: Series[]; format: (n: number) => string }) {
  const [table, setTable] = useState(false)
  const id = `chart-${title.toLowerCase().replaceAll(' ', '-')}`
  const latest = (s: Series) => s.values.findLast((v) => v !== null)
  return (
    <figure className="card overview-chart" aria-labelledby={id}>
      <figcaption id={id}><strong>{title}</strong></figcaption>
      <ul className="overview-legend">
        {series.map((s, i) => (
          <li key={s.label}>
            <svg width="22" height="8" aria-hidden="true"><line x1="0" y1="4" x2="22" y2="4" strokeWidth="2" strokeDasharray={dashes[i]!.join(' ')} style={{ stroke: `var(${s.colour})` }} /></svg>
            {s.label} <span className="soft">{latest(s) === undefined ? '–' : format(latest(s)!)}</span>
          </li>
        ))}
      </ul>
      <Suspense fallback={<Skeleton lines={2} />}><Plot label={`${title}; the table below has the numbers`} at={at} series={series} format={format} /></Suspense>
      <details onToggle={(event) => setTable(event.currentTarget.open)}>
        <summary>As a table</summary>
        {table && (
          <div className="overview-table" tabIndex={0} role="region" aria-label={`${title} as a table`}>{/* oxlint-disable-line jsx-a11y/no-noninteractive-tabindex */}
            <table className="table">
              <thead><tr><th scope="col">At</th>{series.map((s) => <th key={s.label} scope="col" className="end">{s.label}</th>)}</tr></thead>
              <tbody>{at.map((t, i) => <tr key={t}><th scope="row">{time(t * 1000)}</th>{series.map((s) => <td key={s.label} className="end">{s.values[i] == null ? '–' : format(s.values[i])}</td>)}</tr>).reverse()}</tbody>
            </table>
          </div>
        )}
      </details>
    </figure>
  )
}
