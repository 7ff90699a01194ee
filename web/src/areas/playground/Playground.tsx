import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { Link } from 'wouter'
import { text, useFilters, whole, choice } from '../../core/filters'
import { count, number, percent } from '../../core/format'
import { problem } from '../../core/problem'
import { Button } from '../../parts/Button'
import { Field, Select } from '../../parts/Field'
import { Json } from '../../parts/Json'
import { Page } from '../../parts/Page'
import { Empty, ProblemView, States } from '../../parts/States'
import { Text } from '../../parts/Text'
import { scores } from '../catalogue/ask'
import { Legend, Score } from '../catalogue/Score'
import { pieces, sum } from '../catalogue/score'
import { contextOf, phases, type Asked, type Phase, type Shown } from './ask'
import '../catalogue/catalogue.css'
import '../tool/tool.css'
import './playground.css'

const spec = { q: text, tool: text, budget: whole(0), error: text, format: choice('markdown', 'json') }

/** What a model would be shown for a task: what search finds, and the context of each phase with its tokens. */
export default function Playground() {
  const [f, set] = useFilters(spec)
  const [words, setWords] = useState(f.q)
  const [tool, setTool] = useState(f.tool)
  const [error, setError] = useState(f.error)
  const [budget, setBudget] = useState(f.budget ? String(f.budget) : '')
  const wrong = budget !== '' && !(Number(budget) >= 500 && Number(budget) <= 100_000) ? 'From 500 to 100,000, or nothing for the server\'s own.' : undefined
  function show() {
    if (!wrong) set({ q: words.trim(), tool: tool.trim(), error: error.trim(), budget: Number(budget) || 0 })
  }
  return (
    <Page title="Playground" lead="Say what an agent has to do. You see which tools a search finds for it, and what a model would be told in each phase of the work.">
      <form className="playground-ask" onSubmit={(e) => { e.preventDefault(); show() }}>
        <Field label="Task" rows={2} value={words} onChange={setWords} placeholder="order a book for a customer" />
        <div className="filters">
          <Field label="Tool that was chosen" value={tool} onChange={setTool} placeholder="the best that is found" mono />
          <Field label="Error to recover from" value={error} onChange={setError} placeholder="E3310" mono />
          <Field label="Tokens at most" value={budget} onChange={setBudget} placeholder="as the server says" error={wrong} />
          <Select label="Form" value={f.format} onChange={(format) => set({ format: format as 'markdown' | 'json' })} options={[{ value: 'markdown', label: 'Markdown, for a prompt' }, { value: 'json', label: 'JSON, for a program' }]} />
          <Button tone="primary" type="submit" icon="play">Show</Button>
        </div>
      </form>
      {f.q === '' ? <Empty title="No task yet">Enter one above: “find the weather in Oslo and write it into a note”.</Empty> : <Answer f={f} />}
    </Page>
  )
}

type Filters = { q: string; tool: string; budget: number; error: string; format: 'markdown' | 'json' }

function Answer({ f }: { f: Filters }) {
  const found = useQuery({ queryKey: ['playground', 'found', f.q], queryFn: ({ signal }) => scores(f.q, '', signal), staleTime: 30_000 })
  const best = found.data?.of.keys().next().value
  const tool = f.tool || best || ''
  const asked: Asked = { q: f.q, tool, budget: f.budget, error: f.error || 'E3310', format: f.format }
  return (
    <>
      <section className="stack" aria-label="What search finds">
        <h2>What search finds</h2>
        <States query={found} empty={(d) => d.of.size === 0 && <Empty title="No tool fits these words">Contexts then show what there is by category.</Empty>}>
          {(d) => {
            const list = [...d.of].slice(0, 5)
            const full = Math.max(...list.map(([, s]) => sum(pieces(s.parts, d.weights))))
            return (
              <>
                <Legend />
                <ol className="found">
                  {list.map(([id, s]) => <li key={id}><div className="found-head"><Link href={`/tools/${encodeURIComponent(id)}`}><Text most={200}>{id}</Text></Link></div><Score parts={s.parts} weights={d.weights} score={s.score} full={full} /></li>)}
                </ol>
                <p><Link href={`/tools?q=${encodeURIComponent(f.q)}`}>All that was found</Link></p>
              </>
            )
          }}
        </States>
      </section>
      {found.isSuccess && <Contexts asked={asked} />}
      {found.error && <ProblemView problem={problem(found.error)} />}
    </>
  )
}

const titles: Record<Phase, [string, string]> = {
  initial_planning: ['Planning', 'an index of all tools, in a line or two each'],
  tool_selection: ['Choosing', 'the best tools whole, and an index of others'],
  execution_preparation: ['Preparing', 'the chosen tools whole, and what goes with them'],
  error_recovery: ['Recovering', 'what to do about the error, and what else may do it'],
}

function Contexts({ asked }: { asked: Asked }) {
  const query = useQuery({
    queryKey: ['playground', 'contexts', asked], staleTime: 30_000,
    queryFn: ({ signal }) => Promise.all(phases.map((phase) => contextOf(asked, phase, signal))),
  })
  return (
    <section className="stack" aria-label="What a model is told">
      <h2>What a model is told</h2>
      <States query={query}>
        {(list) => {
          const all = list.find((c) => c.all !== undefined)
          return (
            <>
              {list[0]?.degraded && <p className="banner warn"><Text most={300}>{list[0].degraded}</Text></p>}
              <Compared list={list} all={all?.all} estimated={all?.estimated ?? false} />
              <div className="playground-phases">{list.map((c) => <Context key={c.phase} shown={c} />)}</div>
            </>
          )
        }}
      </States>
    </section>
  )
}

// Compared draws the tokens of each phase beside those of giving all tools.
function Compared({ list, all, estimated }: { list: Shown[]; all?: number; estimated: boolean }) {
  const most = Math.max(all ?? 0, ...list.map((c) => c.used))
  const rows = [...list.map((c) => ({ name: titles[c.phase][0], tokens: c.used, tone: 'accent' })), ...(all !== undefined ? [{ name: estimated ? 'All tools (about)' : 'All tools', tokens: all, tone: 'warn' }] : [])]
  return (
    <table className="table playground-tokens">
      <thead><tr><th scope="col">Phase</th><th scope="col" className="end">Tokens</th><th scope="col">{all === undefined ? 'Drawn' : 'Beside giving all'}</th></tr></thead>
      <tbody>
        {rows.map((r) => (
          <tr key={r.name}>
            <th scope="row">{r.name}</th>
            <td className="end">{number(r.tokens)}</td>
            <td><div className="playground-tokens-bar"><span className={r.tone} style={{ width: `${most ? Math.max(0.5, (r.tokens / most) * 100) : 0}%` }} />{all !== undefined && all > 0 && r.tone === 'accent' && <span className="soft">{r.tokens < all ? `${percent(1 - r.tokens / all)} less` : 'no less'}</span>}</div></td>
          </tr>
        ))}
      </tbody>
    </table>
  )
}

function Context({ shown: c }: { shown: Shown }) {
  const [title, about] = titles[c.phase]
  return (
    <article className="card stack">
      <div><h3>{title}</h3><p className="soft">{about}</p></div>
      <p>{number(c.used)} of {number(c.budget)} tokens; {count(c.whole, 'tool')} whole{c.seen > 0 && `, of ${number(c.seen)} that you may see`}</p>
      {c.text !== undefined
        ? <div className="tool-plain mono" role="group" aria-label={`Context of ${title}`} tabIndex={0}><Text most={4000} mono>{c.text}</Text></div>/* oxlint-disable-line jsx-a11y/no-noninteractive-tabindex */
        : <Json value={c.value} label={`Context of ${title}`} />}
      {c.left.length > 0 && (
        <details>
          <summary>Left out ({c.left.length})</summary>
          <ul>{c.left.slice(0, 40).map((l, i) => <li key={i}>{l.what.replaceAll('_', ' ')}{l.toolId && <> of <Text most={100}>{l.toolId}</Text></>}{l.count ? ` (${number(l.count)})` : ''}: <Text most={200}>{l.why}</Text></li>)}</ul>
        </details>
      )}
    </article>
  )
}
