import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { Link } from 'wouter'
import { api, must } from '../../core/api'
import { choice, text, useFilters } from '../../core/filters'
import { problem, type Problem } from '../../core/problem'
import { may } from '../../core/session'
import { Button } from '../../parts/Button'
import { Copy } from '../../parts/Copy'
import { Field, Select } from '../../parts/Field'
import { Page } from '../../parts/Page'
import { ProblemView, States } from '../../parts/States'
import { Outside, Text } from '../../parts/Text'

const here = /mac/i.test(navigator.userAgent) ? 'macos' : /windows/i.test(navigator.userAgent) ? 'windows' : 'linux'
const spec = { client: text, os: choice('', 'linux', 'macos', 'windows') }

/** How a client is connected: what goes into which file, with a key of its own. */
export default function Connect() {
  const [f, set] = useFilters(spec)
  const clients = useQuery({ queryKey: ['connect'], queryFn: () => must(api.GET('/api/v1/connect')), staleTime: 600_000 })
  return (
    <Page title="Connect" lead="Each client gets a key of its own, so that its calls can be told apart and it can be taken away alone.">
      <States query={clients}>
        {(data) => {
          const list = data.clients ?? []
          const chosen = list.find((c) => c.client === f.client) ?? list[0]
          return (
            <>
              <div className="filters">
                <Select label="Client" value={chosen?.client ?? ''} onChange={(client) => set({ client })} options={list.map((c) => ({ value: c.client, label: c.title }))} />
                <Select label="On" value={f.os || here} onChange={(os) => set({ os: os as typeof f.os })} options={[{ value: 'linux', label: 'Linux' }, { value: 'macos', label: 'macOS' }, { value: 'windows', label: 'Windows' }]} />
              </div>
              {chosen && <Client key={chosen.client} client={chosen.client} os={f.os || here} />}
            </>
          )
        }}
      </States>
    </Page>
  )
}

function Client({ client, os }: { client: string; os: 'linux' | 'macos' | 'windows' }) {
  const query = useQuery({ queryKey: ['connect', client, os], staleTime: 600_000, queryFn: () => must(api.GET('/api/v1/connect/{client}', { params: { path: { client }, query: { os } } })) })
  // The key is here alone: in no address, no storage, and gone with the page.
  const [key, setKey] = useState('')
  return (
    <States query={query}>
      {(data) => {
        const filled = (words: string) => (key === '' ? words : words.replaceAll(data.placeholder, key))
        return (
          <div className="stack">
            <MakeKey client={client} made={key !== ''} onMade={setKey} />
            {data.file && <p>Put this into <Text mono>{data.file}</Text>:</p>}
            <pre className="card"><code>{filled(data.snippet)}</code></pre>
            <div className="row-of"><Copy text={filled(data.snippet)} label={key === '' ? 'Copy without a key' : 'Copy with the key'} /></div>
            {data.command && <><p>Or let Toolkeep do it on that machine:</p><pre className="card"><code>{data.command}</code></pre><div><Copy text={data.command} /></div></>}
            {data.docs && <p>The client's own page: <Outside href={data.docs} /></p>}
            <p className="soft">Once it calls a tool, the call is on the page <Link href="/calls">Calls</Link>.</p>
          </div>
        )
      }}
    </States>
  )
}

function MakeKey({ client, made, onMade }: { client: string; made: boolean; onMade: (key: string) => void }) {
  const [subject, setSubject] = useState(client)
  const [busy, setBusy] = useState(false)
  const [failed, setFailed] = useState<Problem>()
  if (made) return <p className="banner ok">The key is in the text below. It is shown this once: copy it now.</p>
  if (!may('keys:admin')) return <p className="banner">You may not make keys. An administrator does it with <code>toolkeep keys create {client} --role agent</code>.</p>
  async function make() {
    setBusy(true)
    setFailed(undefined)
    try {
      onMade((await must(api.POST('/api/v1/keys', { body: { subject: subject.trim(), name: `for ${client}`, roles: ['agent'] } }))).secret)
    } catch (err) {
      setFailed(problem(err))
    } finally {
      setBusy(false)
    }
  }
  return (
    <>
      <div className="filters">
        <Field label="Subject of its key" value={subject} onChange={setSubject} onEnter={() => { if (subject.trim() !== '' && !busy) void make() }} />
        <Button tone="primary" busy={busy} disabled={subject.trim() === ''} onClick={make}>Make a key</Button>
      </div>
      {failed && <ProblemView problem={failed} />}
    </>
  )
}
