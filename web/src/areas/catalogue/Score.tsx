import { pieces, widths, type Parts, type Weights } from './score'

const two = (n: number) => n.toFixed(2)

/** A score drawn: each part by what it adds. The numbers are beside it. */
export function Score({ parts, weights, score, full }: { parts: Parts; weights: Weights; score: number; full: number }) {
  const list = pieces(parts, weights)
  const wide = widths(list, full)
  const said = list.filter((p) => p.adds !== 0).map((p) => `${p.name} ${two(p.adds)}`).join(', ')
  return (
    <div className="score">
      <div className="score-bar" role="img" aria-label={`Score ${two(score)}: ${said}`}>
        {list.map((p, i) => wide[i]! > 0 && <span key={p.name} className={`score-${p.name}`} style={{ width: `${wide[i]}%` }} title={`${p.name} ${two(p.adds)}`} />)}
      </div>
      <span className="score-number">{two(score)}</span>
      <details>
        <summary>parts</summary>
        <table className="table">
          <thead><tr><th scope="col">Part</th><th scope="col" className="end">Value</th><th scope="col" className="end">Weight</th><th scope="col" className="end">Adds</th></tr></thead>
          <tbody>
            {list.map((p) => <tr key={p.name}><td>{p.name} <span className="soft">{p.means}</span></td><td className="end">{two(p.part)}</td><td className="end">{two(p.weight)}</td><td className="end">{two(p.adds)}</td></tr>)}
            <tr><td>learned <span className="soft">moves tools, and is in no score</span></td><td className="end">{two(parts.learned)}</td><td /><td /></tr>
          </tbody>
        </table>
        {parts.named && <p className="soft">The query names the tool, which puts it first.</p>}
      </details>
    </div>
  )
}

/** What the colours of scores mean. */
export function Legend() {
  return (
    <ul className="score-legend" aria-label="Parts of a score">
      {['words', 'meaning', 'history', 'success', 'action'].map((name) => <li key={name}><span className={`score-key score-${name}`} aria-hidden="true" />{name}</li>)}
    </ul>
  )
}
