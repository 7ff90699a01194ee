import { useEffect, useRef, useState } from 'react'
import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'
import { timeOfDay } from '../../core/format'
import { dashes } from './Chart'
import type { Series } from './model'

/** The lines themselves. They are drawn again where the theme or the width changes. */
export default function Plot({ label, at, series, format }: { label: string; at: number[]; series: Series[]; format: (n: number) => string }) {
  const place = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot>(undefined)
  const theme = useTheme()
  const names = series.map((s) => s.label).join()
  const latest = useRef({ at, series, format })
  latest.current = { at, series, format }

  useEffect(() => {
    const element = place.current!
    const style = getComputedStyle(document.documentElement)
    const colour = (name: string) => style.getPropertyValue(name).trim()
    const axis: uPlot.Axis = { stroke: colour('--soft'), grid: { stroke: colour('--line'), width: 1 }, ticks: { stroke: colour('--line'), width: 1 }, font: `12px ${style.getPropertyValue('--font')}` }
    const made = new uPlot({
      width: element.clientWidth, height: 180, legend: { show: false }, cursor: { y: false },
      scales: { y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      axes: [
        { ...axis, values: (_plot, splits) => splits.map((s) => timeOfDay(s * 1000).slice(0, splits.at(-1)! - splits[0]! < 600 ? 8 : 5)), space: 64 },
        { ...axis, values: (_plot, splits) => splits.map((s) => latest.current.format(s)), size: 64 },
      ],
      series: [{}, ...latest.current.series.map((s, i) => ({ label: s.label, stroke: colour(s.colour), width: 2, dash: dashes[i]!, points: { show: (plot: uPlot) => plot.data[0].length <= 60, size: 5 }, spanGaps: false }))],
    }, [latest.current.at, ...latest.current.series.map((s) => s.values)], element)
    plot.current = made
    const watch = new ResizeObserver(() => { if (element.clientWidth > 0) made.setSize({ width: element.clientWidth, height: 180 }) })
    watch.observe(element)
    return () => { watch.disconnect(); made.destroy(); plot.current = undefined }
  }, [theme, names])

  useEffect(() => { plot.current?.setData([at, ...series.map((s) => s.values)]) }, [at, series])
  return <div ref={place} role="img" aria-label={label} className="overview-plot" />
}

// useTheme changes whenever the colours do.
function useTheme(): number {
  const [turn, setTurn] = useState(0)
  useEffect(() => {
    const change = () => setTurn((n) => n + 1)
    const dark = window.matchMedia('(prefers-color-scheme: dark)')
    dark.addEventListener('change', change)
    const watch = new MutationObserver(change)
    watch.observe(document.documentElement, { attributes: true, attributeFilter: ['data-theme'] })
    return () => { dark.removeEventListener('change', change); watch.disconnect() }
  }, [])
  return turn
}
