import { useQuery } from '@tanstack/react-query'
import { api, must } from '../../core/api'
import { choice, useFilters } from '../../core/filters'
import { count } from '../../core/format'
import { may } from '../../core/session'
import { Badge } from '../../parts/Badge'
import { Page } from '../../parts/Page'
import { Rows } from '../../parts/Rows'
import { Empty, States } from '../../parts/States'
import { Text } from '../../parts/Text'
import { Time } from '../../parts/Time'
import { risks, states, tabs, type Approval } from './wire'

const spec = { state: choice('pending', 'all') }

/** The calls that wait for a person, those for oneself first. */
export default function Inbox() {
  const [f] = useFilters(spec)
  const query = useQuery({
    queryKey: ['approvals', 'list', f.state],
    queryFn: async ({ signal }) => {
      const list = await must(api.GET('/api/v1/approvals', { params: { query: { page_size: 200, state: f.state === 'pending' ? 'pending' : undefined } }, signal }))
      return { total: list.total_count, rows: [...((list.approvals ?? []) as Approval[])].sort((a, b) => Number(b.you_decide) - Number(a.you_decide)) }
    },
    refetchInterval: 3000,
  })
  return (
    <Page title="Approvals" tabs={tabs} current={f.state === 'pending' ? '/approvals' : '/approvals?state=all'}
      lead="Calls that run only if a person allows them: the tool's risk, its manifest, a rule or a policy asks for it.">
      <States query={query} empty={(data) => data.rows.length === 0 && (f.state === 'pending'
        ? <Empty title="Nothing waits">{may('approvals:decide') ? 'A call that needs your decision appears here by itself.' : 'Calls of your own that wait for others appear here.'}</Empty>
        : <Empty title="Nothing was decided within a day">Decisions from before are in the audit, as events approval.decided.</Empty>)}>
        {(data) => (
          <>
            {data.total > data.rows.length && <p className="banner">The newest {data.rows.length} of {count(data.total, 'request')} are shown.</p>}
            <Rows<Approval> label="approvals" count={data.rows.length} row={(i) => data.rows[i]} rowKey={(one) => one.invocation_id} href={(one) => `/approvals/${encodeURIComponent(one.invocation_id)}`}
              columns={[
                { title: 'Tool', width: 'minmax(0, 1.4fr)', cell: (one) => <Text most={120}>{one.tool_id}</Text> },
                { title: 'Agent', width: 'minmax(0, 1fr)', cell: (one) => <Text most={80}>{one.agent_id}</Text> },
                { title: 'Why', width: 'minmax(0, 2fr)', phone: false, cell: (one) => <Text most={200}>{one.why}</Text> },
                { title: 'Risk', width: '90px', phone: false, cell: (one) => one.risk ? <Badge tone={risks[one.risk]}>{one.risk}</Badge> : '–' },
                { title: 'State', width: '150px', phone: false, cell: (one) => one.state === 'pending' ? (one.you_decide ? <Badge tone="warn">you decide</Badge> : <Badge icon="wait">{one.have} of {one.needed}</Badge>) : <Badge tone={states[one.state]?.tone}>{states[one.state]?.word ?? one.state}</Badge> },
                { title: 'Ends', width: '110px', align: 'end', cell: (one) => <Time at={one.state === 'pending' ? one.expires_at : one.decided_at ?? one.expires_at} /> },
              ]} />
          </>
        )}
      </States>
    </Page>
  )
}
