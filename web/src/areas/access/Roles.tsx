import { useQuery } from '@tanstack/react-query'
import { api, must } from '../../core/api'
import type { components } from '../../core/schema'
import { Badge } from '../../parts/Badge'
import { Page } from '../../parts/Page'
import { Empty, States } from '../../parts/States'
import { Text } from '../../parts/Text'
import { tabs } from './tabs'

type Rule = components['schemas']['Rule']

/** The roles beside the built-in ones, as the server's file has them. */
export default function Roles() {
  const query = useQuery({ queryKey: ['roles'], queryFn: () => must(api.GET('/api/v1/roles')) })
  return (
    <Page title="Roles" tabs={tabs()} lead="Built in are admin, publisher, operator, agent and auditor. Own roles stand in the server's files and are changed there; they decide within a second.">
      <States query={query} empty={(data) => (data.roles ?? []).length === 0 && <Empty title="No own role">Name a file of roles in the setting <code>access.roles_file</code>, such as: readers may see and call what only reads.</Empty>}>
        {(data) => (
          <>
            {data.file && <p>From <Text mono>{data.file}</Text></p>}
            <ul className="cards plain">
              {(data.roles ?? []).map((role) => (
                <li key={role.name} className="card stack">
                  <h2><Text most={100}>{role.name}</Text></h2>
                  {role.description && <p className="soft"><Text>{role.description}</Text></p>}
                  {(role.inherits ?? []).length > 0 && <p>Has what <Text>{(role.inherits ?? []).join(', ')}</Text> has</p>}
                  {(role.tenants ?? []).length > 0 && <p>In <Text>{(role.tenants ?? []).join(', ')}</Text> alone</p>}
                  {(role.permissions ?? []).length > 0 && <div className="row-of">{(role.permissions ?? []).map((p) => <Badge key={p} tone="info"><Text most={60}>{p}</Text></Badge>)}</div>}
                  <Rules list={role.allow} tone="ok" word="allows" />
                  <Rules list={role.deny} tone="bad" word="denies" />
                </li>
              ))}
            </ul>
          </>
        )}
      </States>
    </Page>
  )
}

function Rules({ list, tone, word }: { list?: Rule[] | null; tone: 'ok' | 'bad'; word: string }) {
  return (list ?? []).map((rule, i) => (
    <div key={i} className="row-of"><Badge tone={tone}>{word}</Badge><Text>{say(rule)}</Text></div>
  ))
}

function say(rule: Rule): string {
  const parts = [
    ['', rule.tools], ['tags', rule.tags], ['categories', rule.categories], ['side effects', rule.side_effects],
    ['risk at most', rule.max_risk && [rule.max_risk]], ['risk from', rule.min_risk && [rule.min_risk]], ['to', rule.actions],
  ] as [string, string[] | null | undefined][]
  return parts.filter(([, values]) => values && values.length > 0).map(([name, values]) => `${name} ${values!.join(', ')}`.trim()).join('; ')
}
