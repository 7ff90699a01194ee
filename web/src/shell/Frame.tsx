import { useQuery } from '@tanstack/react-query'
import { useEffect, useState, type ReactNode } from 'react'
import { Link, useLocation } from 'wouter'
import { api, must } from '../core/api'
import { shortcuts, useShortcuts } from '../core/keys'
import { logOut, may, session } from '../core/session'
import { Button } from '../parts/Button'
import { Dialog } from '../parts/Dialog'
import { Check, Select } from '../parts/Field'
import { Icon } from '../parts/Icon'
import { Text } from '../parts/Text'
import { toastProblem } from '../parts/Toast'
import { routes, type Route } from '../routes'
import { Logo } from './Logo'
import { setTheme, theme, type Theme } from './theme'

const groups = ['Tools', 'Operation', 'Control'] as const

/** Whether the one who is logged in may open the page. */
export function allowed(route: Route): boolean {
  const any = route.permission === undefined || [route.permission].flat().some(may)
  return any && (route.when?.() ?? true)
}

/** The navigation and what is around a page. */
export function Frame({ children }: { children: ReactNode }) {
  const [path, navigate] = useLocation()
  const [open, setOpen] = useState(false)
  const [help, setHelp] = useState(false)
  useEffect(() => setOpen(false), [path])
  const shown = routes.filter((route) => route.nav && allowed(route)).sort((a, b) => a.nav!.order - b.nav!.order)
  const waiting = useWaiting()
  useShortcuts([
    { keys: '?', does: 'Show the keys', run: () => setHelp(true) },
    ...shown.flatMap((route) => (route.nav?.key ? [{ keys: `g ${route.nav.key}`, does: `Go to ${route.title}`, run: () => navigate(route.path) }] : [])),
  ])
  const here = (route: Route) => (path === route.path || (route.path !== '/' && path.startsWith(`${route.path}/`)) ? ('page' as const) : undefined)
  const count = (route: Route) => route.path === '/approvals' && waiting > 0 && <span className="count" aria-label={`${waiting} wait`}>{waiting}</span>
  const first = ['/overview', '/tools', '/calls', '/approvals', '/servers'].flatMap((one) => shown.find((route) => route.path === one) ?? []).slice(0, 4)
  return (
    <>
      <a className="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById('main')?.focus() }}>Skip to the page</a>
      <div className="frame">
        <nav className={open ? 'rail open' : 'rail'} aria-label="Pages" id="rail">
          <Link className="brand" href="/"><Logo /> Toolkeep</Link>
          {groups.map((group) => {
            const list = shown.filter((route) => route.nav!.group === group)
            return list.length > 0 && (
              <section key={group} aria-label={group}>
                <h2>{group}</h2>
                <ul>{list.map((route) => <li key={route.path}><Link href={route.path} aria-current={here(route)}><Icon name={route.nav!.icon} />{route.title}{count(route)}</Link></li>)}</ul>
              </section>
            )
          })}
          <ul><li><Link href="/agents" aria-current={path === '/agents' ? 'page' : undefined}><Icon name="agents" /><span className="soft">Agents (later)</span></Link></li></ul>
          <Who help={() => setHelp(true)} />
        </nav>
        <main id="main" tabIndex={-1}>{children}</main>
        <nav className="bottom" aria-label="Main pages">
          {first.map((route) => <Link key={route.path} href={route.path} aria-current={here(route)}><Icon name={route.nav!.icon} size={20} />{route.title}{count(route)}</Link>)}
          <button type="button" aria-expanded={open} aria-controls="rail" onClick={() => setOpen(!open)}><Icon name="menu" size={20} />More</button>
        </nav>
      </div>
      <Keys open={help} onClose={() => setHelp(false)} />
    </>
  )
}

function Who({ help }: { help: () => void }) {
  const me = session()
  const [look, setLook] = useState<Theme>(theme())
  return (
    <div className="who">
      <div><strong><Text most={60}>{me.subject}</Text></strong><div className="soft small"><Text most={60}>{me.roles.join(', ') || 'no role'}</Text> · <Text most={60}>{me.tenant_id}</Text></div></div>
      <Select label="Colours" hideLabel value={look} onChange={(value) => { setTheme(value as Theme); setLook(value as Theme) }}
        options={[{ value: 'system', label: 'Colours of the system' }, { value: 'light', label: 'Light' }, { value: 'dark', label: 'Dark' }]} />
      <div className="row-of"><Button tone="quiet" onClick={help}>Keys</Button><Button tone="quiet" icon="out" onClick={() => { logOut().catch(toastProblem) }}>Log out</Button></div>
      <div className="soft small">Toolkeep <Text most={40}>{me.version}</Text></div>
    </div>
  )
}

/** How many calls wait for this person. */
function useWaiting(): number {
  const query = useQuery({
    queryKey: ['approvals', 'waiting'],
    queryFn: () => must(api.GET('/api/v1/approvals', { params: { query: { state: 'pending', page_size: 200 } } })),
    refetchInterval: 5000,
    enabled: may('approvals:decide') || may('invocations:read'),
    retry: false,
  })
  return query.data?.approvals.filter((one) => one.you_decide).length ?? 0
}

function Keys({ open, onClose }: { open: boolean; onClose: () => void }) {
  const [on, setOn] = useState(shortcuts.on())
  return (
    <Dialog title="Keys" open={open} onClose={onClose}>
      <table className="table"><tbody>{open && shortcuts.all().map((one) => <tr key={one.keys}><td><kbd>{one.keys}</kbd></td><td>{one.does}</td></tr>)}</tbody></table>
      <Check label="Keys without Ctrl or Alt do these" checked={on} onChange={(is) => { shortcuts.turn(is); setOn(is) }} />
    </Dialog>
  )
}
