// How numbers, times and sizes are written. All of it in English, as the words around it.

const grouped = new Intl.NumberFormat('en', { maximumFractionDigits: 2 })
const short = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 })
const dollars = new Intl.NumberFormat('en', { style: 'currency', currency: 'USD', maximumFractionDigits: 4 })
const share = new Intl.NumberFormat('en', { style: 'percent', maximumFractionDigits: 1 })
const day = new Intl.DateTimeFormat('en-GB', { day: '2-digit', month: 'short', year: 'numeric', hour: '2-digit', minute: '2-digit', second: '2-digit' })
const clock = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' })
const ages = new Intl.RelativeTimeFormat('en', { numeric: 'auto', style: 'short' })

export const number = (n: number) => grouped.format(n)
/** 12.3K */
export const compact = (n: number) => short.format(n)
export const usd = (n: number) => dollars.format(n)
/** 0.25 as 25% */
export const percent = (n: number) => share.format(n)
/** "1 tool", "3 tools" */
export const count = (n: number, one: string, many = `${one}s`) => `${grouped.format(n)} ${n === 1 ? one : many}`

export function bytes(n: number): string {
  const units = ['B', 'KB', 'MB', 'GB', 'TB']
  let i = 0
  while (n >= 1000 && i < units.length - 1) { n /= 1000; i++ }
  return `${i === 0 ? n : n.toFixed(n < 10 ? 1 : 0)} ${units[i]}`
}

/** Milliseconds as 850 µs, 12 ms, 1.2 s, 3 min 5 s, 2 h 3 min. */
export function duration(ms: number): string {
  if (ms < 1) return `${Math.round(ms * 1000)} µs`
  if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`
  const s = Math.round(ms / 1000)
  if (s < 3600) return `${Math.floor(s / 60)} min${s % 60 ? ` ${s % 60} s` : ''}`
  if (s < 48 * 3600) return `${Math.floor(s / 3600)} h${Math.floor(s / 60) % 60 ? ` ${Math.floor(s / 60) % 60} min` : ''}`
  return `${Math.floor(s / 86_400)} days`
}

type When = string | number | Date

/** Day and time where the reader is. */
export const time = (at: When) => day.format(new Date(at))
/** The time of day alone. */
export const timeOfDay = (at: When) => clock.format(new Date(at))
/** The same in UTC, for titles. */
export const utc = (at: When) => new Date(at).toISOString().replace('T', ' ').replace(/\.\d+Z$/, ' UTC')

/** "5 min. ago", "in 2 hr." */
export function age(at: When, now = Date.now()): string {
  const s = Math.round((new Date(at).getTime() - now) / 1000)
  const a = Math.abs(s)
  if (a < 60) return ages.format(s, 'second')
  if (a < 3600) return ages.format(Math.round(s / 60), 'minute')
  if (a < 86_400) return ages.format(Math.round(s / 3600), 'hour')
  return ages.format(Math.round(s / 86_400), 'day')
}
