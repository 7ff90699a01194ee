import { useQuery } from '@tanstack/react-query'
import { Link } from 'wouter'
import { api, must } from '../../core/api'
import { Badge } from '../../parts/Badge'
import { States } from '../../parts/States'
import { Text } from '../../parts/Text'
import { manifestOf, type ToolAnswer } from './wire'

const kinds = [
  ['dependencies', 'What must be there first', 'Its manifest names no tool that must be called first.'],
  ['pairings', 'What goes with it', 'No tool was called with it yet, and its manifest names none.'],
  ['alternatives', 'What does the like', 'No other tool does the like.'],
] as const
const when: Record<string, string> = { before: 'called before', after: 'called after', parallel: 'called at the same time' }
const sources: Record<string, string> = { manifest: 'named by its manifest', usage: 'from calls of your tenant', search: 'alike by its words' }

/** The tools that go with this one, or could stand in for it. */
export function Related({ tool }: { tool: ToolAnswer }) {
  return <div className="stack">{kinds.map(([kind, title, none]) => <Kind key={kind} id={tool.tool_id} kind={kind} title={title} none={none} />)}</div>
}

function Kind({ id, kind, title, none }: { id: string; kind: (typeof kinds)[number][0]; title: string; none: string }) {
  const query = useQuery({
    queryKey: ['tool', id, 'related', kind], staleTime: 30_000,
    queryFn: ({ signal }) => must(api.GET('/api/v1/tools/retrieval/related/{toolId}', { params: { path: { toolId: id }, query: { relationshipType: kind, maxResults: 10 } }, signal })),
  })
  return (
    <section>
      <h2>{title}</h2>
      <States query={query} empty={({ data }) => data.relatedTools.length === 0 && <p className="soft">{none}</p>}>
        {({ data }) => (
          <ul className="tool-list">
            {data.relatedTools.map((r) => (
              <li key={r.toolId} className="tool-related">
                <Link href={`/tools/${encodeURIComponent(r.toolId)}`}><Text most={200}>{r.toolId}</Text></Link>
                {r.sequence && <Badge tone="info" icon={r.sequence === 'parallel' ? 'dash' : 'right'}>{when[r.sequence] ?? r.sequence}</Badge>}
                <span className="soft">{sources[r.source] ?? r.source}{r.relationshipScore < 1 && `, ${r.relationshipScore.toFixed(2)}`}</span>
                <p><Text most={200}>{manifestOf(r).short_description || manifestOf(r).description}</Text></p>
              </li>
            ))}
          </ul>
        )}
      </States>
    </section>
  )
}
