import { useQuery } from '@tanstack/react-query'
import { Link } from 'wouter'
import { api, must } from '../../core/api'
import { flag, useFilters } from '../../core/filters'
import { Badge } from '../../parts/Badge'
import { Json } from '../../parts/Json'
import { Page } from '../../parts/Page'
import { Empty, States } from '../../parts/States'
import { Text } from '../../parts/Text'
import { Time } from '../../parts/Time'
import { say, tabs, text, tone } from './wire'

const spec = { archive: flag }

/** One entry of the audit, whole. */
export default function Entry({ id }: { id: string }) {
  const [f] = useFilters(spec)
  const query = useQuery({
    queryKey: ['audit', 'one', id, f.archive],
    queryFn: async ({ signal }) => {
      let cursor: string | undefined
      for (let i = 0; i < 20; i++) {
        const data = await must(api.GET('/api/v1/audit/events', { params: { query: { id, archive: f.archive || undefined, cursor } }, signal }))
        if (data.events?.[0]) return data.events[0]
        cursor = data.next || undefined
        if (!cursor) break
      }
      return null
    },
  })
  const e = query.data
  const decision = e && text(e.data, 'decision')
  const call = e && text(e.data, 'invocation_id')
  return (
    <Page title={e ? say(e.type) : 'Audit entry'} tabs={tabs} current="/audit" badges={decision && <Badge tone={tone(decision)}><Text most={20}>{decision}</Text></Badge>}>
      <States query={query} empty={e === null && <Empty title="The entry is not there">It may be older than what the store keeps: <Link href={`/audit/${encodeURIComponent(id)}?archive=true`}>look in the archive</Link>.</Empty>}>
        {(one) => one && (
          <div className="stack">
            <dl className="facts card">
              <dt>Type</dt><dd><Text mono>{one.type}</Text></dd>
              <dt>When</dt><dd><Time at={one.time} full /></dd>
              <dt>Id</dt><dd><Text mono>{one.id}</Text></dd>
              {call && <><dt>Call</dt><dd><Link href={`/calls/${encodeURIComponent(call)}`}><Text mono>{call}</Text></Link></dd></>}
              <dt>Written by</dt><dd><Text mono>{String(one.chainwriter)}</Text>, its entry {String(one.chainnumber)}</dd>
              <dt>Hash</dt><dd>{one.chainhash ? <Text mono>{one.chainhash}</Text> : 'none: it is from before the chain'}</dd>
            </dl>
            <Json value={one.data} label="What was recorded" />
          </div>
        )}
      </States>
    </Page>
  )
}
