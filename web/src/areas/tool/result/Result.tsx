import { useEffect, useMemo, useState } from 'react'
import { Link } from 'wouter'
import { bytes as fetchBytes } from '../../../core/api'
import { count, duration, bytes as size, usd } from '../../../core/format'
import { Badge, type Tone } from '../../../parts/Badge'
import { Button } from '../../../parts/Button'
import { Text } from '../../../parts/Text'
import { toastProblem } from '../../../parts/Toast'
import { Tree } from '../../../parts/Tree'
import { json } from '../form/value'
import type { Answer } from '../wire'
import { cell, numeric, pictureType, picturesOf, tableOf, textOf, type Picture, type Table } from './shape'

const tones: Record<string, Tone> = { success: 'ok', error: 'bad', timeout: 'bad', permission_denied: 'bad', cancelled: 'warn' }
const sources: Record<string, string> = { cache: 'from the cache', replay: 'the answer of an earlier press with the same key' }

/** How a call ended: its result in the views that it has, or what went wrong. */
export function Result({ answer, tool }: { answer: Answer; tool: string }) {
  const meta = answer.execution_metadata
  const failed = answer.error
  return (
    <section className="tool-result" aria-label="Result">
      <div className="tool-result-head">
        <Badge tone={tones[answer.status] ?? 'info'}>{answer.status.replaceAll('_', ' ')}</Badge>
        <span>{duration(meta.duration_ms || meta.overhead_us / 1000)}</span>
        {sources[meta.source] && <Badge tone="info">{sources[meta.source]}</Badge>}
        {meta.retry_count > 0 && <span>{count(meta.retry_count + 1, 'attempt')}</span>}
        {meta.cost_usd > 0 && <span>{usd(meta.cost_usd)}</span>}
        {meta.tool_version && <span className="soft">version {meta.tool_version}</span>}
        {meta.truncated && <Badge tone="warn">cut: the whole is in the attachment</Badge>}
        <Link href={`/calls/${encodeURIComponent(answer.invocation_id)}`}>The whole way of this call</Link>
      </div>
      {meta.warnings.map((w, i) => <p key={i} className="banner warn"><code>{w.code}</code> <Text most={1000}>{w.message}</Text></p>)}
      {meta.fallback && <p className="banner info">The tool failed, and its fallback was asked.</p>}
      {failed && (
        <div className="problem bad">
          <h3>{failed.name.replaceAll('_', ' ')}</h3>
          <p><Text>{failed.message}</Text></p>
          <p className="soft">Code <code>{failed.error_code}</code>. {failed.retryable ? 'The same call may succeed later.' : ''}</p>
          {failed.details && Object.keys(failed.details).length > 0 && <Tree value={failed.details} name="details" open={false} />}
        </div>
      )}
      {meta.attachments.length > 0 && <Attachments list={meta.attachments} />}
      {answer.result !== undefined && <Views value={answer.result} name={`${tool}-${answer.invocation_id}`} />}
    </section>
  )
}

type View = 'Table' | 'Pictures' | 'Text' | 'Tree' | 'JSON'

/** A value in the views that it has. */
export function Views({ value, name }: { value: unknown; name: string }) {
  const table = useMemo(() => tableOf(value), [value])
  const pictures = useMemo(() => picturesOf(value), [value])
  const text = useMemo(() => textOf(value), [value])
  const deep = typeof value === 'object' && value !== null
  const views: View[] = [...(pictures.length > 0 ? ['Pictures' as const] : []), ...(table?.whole ? ['Table' as const] : []), ...(text !== undefined ? ['Text' as const] : []), ...(deep ? ['Tree' as const] : []), ...(table && !table.whole ? ['Table' as const] : []), 'JSON']
  const [chosen, setChosen] = useState<View>()
  const view = chosen && views.includes(chosen) ? chosen : views[0]!
  return (
    <div>
      <div className="tool-views" role="group" aria-label="Show the result as">
        {views.map((v) => <button key={v} type="button" aria-pressed={v === view} onClick={() => setChosen(v)}>{v}</button>)}
        <Button tone="quiet" icon="down_tray" onClick={() => (typeof value === 'string' ? save(new Blob([value], { type: 'text/plain' }), `${name}.txt`) : save(new Blob([json(value)], { type: 'application/json' }), `${name}.json`))}>Download</Button>
      </div>
      {view === 'Table' && table && <Grid table={table} />}
      {view === 'Pictures' && <div className="tool-pictures">{pictures.map((p, i) => <Shown key={i} picture={p} label={`Picture ${i + 1} of the result`} />)}</div>}
      {view === 'Text' && <div className="tool-plain"><Text>{text}</Text></div>}
      {view === 'Tree' && <Tree value={value} />}
      {view === 'JSON' && <JSONText value={value} />}
    </div>
  )
}

function JSONText({ value }: { value: unknown }) {
  const text = useMemo(() => json(value), [value])
  return <div className="tool-plain mono"><Text mono>{text}</Text></div>
}

const step = 100

function Grid({ table }: { table: Table }) {
  const [most, setMost] = useState(step)
  const right = useMemo(() => new Set(table.columns.filter((c) => numeric(table.rows, c))), [table])
  const left = table.rows.length - most
  return (
    <>
      <p className="soft">{count(table.rows.length, 'row')}{table.path && <> of <code>{table.path}</code></>}{table.more > 0 && `, ${count(table.more, 'column')} more in the tree`}</p>
      <div className="tool-scroll" role="group" aria-label="Result as a table" tabIndex={0}>{/* oxlint-disable-line jsx-a11y/no-noninteractive-tabindex */}
        <table className="tool-data">
          <thead><tr>{table.columns.map((c) => <th key={c} scope="col" className={right.has(c) ? 'end' : undefined}><Text most={80}>{c}</Text></th>)}</tr></thead>
          <tbody>{table.rows.slice(0, most).map((row, i) => <tr key={i}>{table.columns.map((c) => <td key={c} className={right.has(c) ? 'end' : undefined}><Text most={300}>{cell(row[c])}</Text></td>)}</tr>)}</tbody>
        </table>
      </div>
      {left > 0 && <Button tone="quiet" onClick={() => setMost(most + 10 * step)}>{left} more rows</Button>}
    </>
  )
}

function Shown({ picture, label }: { picture: Picture; label: string }) {
  const url = useMemo(() => URL.createObjectURL(new Blob([picture.bytes], { type: picture.type })), [picture])
  useEffect(() => () => URL.revokeObjectURL(url), [url])
  return <figure><img src={url} alt={label} /><figcaption className="soft">{picture.type}, {size(picture.bytes.length)}</figcaption></figure>
}

const mostShown = 16 << 20

function Attachments({ list }: { list: Answer['execution_metadata']['attachments'] }) {
  return <ul className="tool-attachments">{list.map((one, i) => <li key={i}><Attachment one={one} number={i + 1} /></li>)}</ul>
}

function Attachment({ one, number }: { one: Answer['execution_metadata']['attachments'][number]; number: number }) {
  const [picture, setPicture] = useState<Picture>()
  const [busy, setBusy] = useState(false)
  const own = /^\/api\/v1\/blobs\/[^/?#]+$/.test(one.url) // never an address that a tool could choose
  async function get(then: (blob: Blob) => Promise<void> | void) {
    setBusy(true)
    try {
      await then(await fetchBytes(one.url))
    } catch (err) {
      toastProblem(err)
    } finally {
      setBusy(false)
    }
  }
  async function look(blob: Blob) {
    const bytes = new Uint8Array(await blob.arrayBuffer())
    const type = pictureType(bytes)
    if (type) setPicture({ type, bytes })
    else save(blob, `attachment-${number}`)
  }
  return (
    <>
      <span>Attachment {number}: <Text most={100}>{one.content_type ?? one.kind}</Text>{one.bytes !== undefined && `, ${size(one.bytes)}`}</span>
      {own && <Button tone="quiet" icon="down_tray" busy={busy} onClick={() => get((blob) => save(blob, `attachment-${number}`))}>Download</Button>}
      {own && one.kind === 'image' && (one.bytes ?? 0) <= mostShown && !picture && <Button tone="quiet" busy={busy} onClick={() => get(look)}>Show</Button>}
      {picture && <Shown picture={picture} label={`Attachment ${number}`} />}
    </>
  )
}

/** Saves bytes as a file. They are never opened as a page. */
export function save(blob: Blob, name: string) {
  const url = URL.createObjectURL(new Blob([blob], { type: 'application/octet-stream' }))
  const link = document.createElement('a')
  link.href = url
  link.download = name.replaceAll(/[^\w.-]+/g, '-').slice(0, 120)
  link.click()
  setTimeout(() => URL.revokeObjectURL(url), 10_000)
}
