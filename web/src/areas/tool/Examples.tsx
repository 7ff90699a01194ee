import { useLocation } from 'wouter'
import { Button } from '../../parts/Button'
import { Empty } from '../../parts/States'
import { Text } from '../../parts/Text'
import { Tree } from '../../parts/Tree'
import { hand } from './Call'
import { manifestOf, type ToolAnswer } from './wire'

/** The examples of a tool, each of which can be tried. */
export function Examples({ tool }: { tool: ToolAnswer }) {
  const [, navigate] = useLocation()
  const list = manifestOf(tool).examples ?? []
  if (list.length === 0) return <Empty title="This tool has no examples">They come with its manifest (<code>examples</code>): a few help agents to call it well.</Empty>
  return (
    <ul className="tool-list stack">
      {list.map((e, i) => (
        <li key={i} className="card stack">
          <div className="row-of"><h2 className="grow"><Text most={300}>{e.scenario || e.description || `Example ${i + 1}`}</Text></h2>
            {typeof e.input === 'object' && e.input !== null && <Button icon="play" onClick={() => { hand(tool.tool_id, e.input); navigate(`/tools/${encodeURIComponent(tool.tool_id)}${location.search}`) }}>Try it</Button>}
          </div>
          {e.explanation && <p><Text most={2000}>{e.explanation}</Text></p>}
          <div className="tool-sides">
            <div><h3>Arguments</h3><Tree value={e.input ?? {}} name="arguments" /></div>
            {e.output !== undefined && <div><h3>Result</h3><Tree value={e.output} name="result" /></div>}
          </div>
        </li>
      ))}
    </ul>
  )
}
