import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { api, must } from '../../core/api'
import { Button } from '../../parts/Button'
import { Confirm } from '../../parts/Dialog'
import { Page } from '../../parts/Page'
import { Empty, States } from '../../parts/States'
import { Text } from '../../parts/Text'
import { Time } from '../../parts/Time'
import { toast } from '../../parts/Toast'
import { tabs, type Grant } from './wire'

/** What was approved for later calls too. */
export default function Standing() {
  const query = useQuery({
    queryKey: ['approvals', 'grants'],
    queryFn: () => must(api.GET('/api/v1/approvals/grants', { params: { query: { page_size: 200 } } })),
    refetchInterval: 10_000,
  })
  const [taking, setTaking] = useState<Grant>()
  return (
    <Page title="Standing approvals" tabs={tabs} lead="Each lets later calls of one agent and one version of a tool run without asking, for 24 hours at most.">
      <States query={query} empty={(data) => (data.grants ?? []).length === 0 && <Empty title="No standing approval">Who approves a call can also approve its like for some hours.</Empty>}>
        {(data) => (
          <ul className="cards plain">
            {((data.grants ?? []) as Grant[]).map((one) => (
              <li key={one.id} className="card stack">
                <h2><Text most={120}>{one.tool_id}</Text> <span className="soft small">{one.tool_version}</span></h2>
                <dl className="facts">
                  <dt>Agent</dt><dd><Text>{one.agent_id}</Text></dd>
                  {one.user_id && <><dt>For</dt><dd><Text>{one.user_id}</Text></dd></>}
                  <dt>Covers</dt><dd>{one.for === 'session' ? 'every call of the session' : 'calls with the same arguments'}</dd>
                  <dt>Until</dt><dd><Time at={one.until} full /></dd>
                </dl>
                <div><Button tone="bad" onClick={() => setTaking(one)}>Take back</Button></div>
              </li>
            ))}
          </ul>
        )}
      </States>
      <Confirm title="Take the standing approval back?" open={!!taking} onClose={() => setTaking(undefined)} action="Take back" tone="bad"
        onConfirm={async () => {
          await must(api.DELETE('/api/v1/approvals/grants/{invocation_id}', { params: { path: { invocation_id: taking!.id } } }))
          toast('Taken back')
          await query.refetch()
        }}>
        Later calls wait for a person again. Calls that have begun go on.
      </Confirm>
    </Page>
  )
}
