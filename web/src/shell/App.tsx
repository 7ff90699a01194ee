import { Component, lazy, Suspense, useEffect, useMemo, useState, useSyncExternalStore, type ReactNode } from 'react'
import { Redirect, Route, Switch } from 'wouter'
import { problem, type Problem } from '../core/problem'
import { askSession, sessionStore } from '../core/session'
import { Button } from '../parts/Button'
import { Page } from '../parts/Page'
import { Empty, ProblemView, Skeleton } from '../parts/States'
import { Toasts } from '../parts/Toast'
import { routes } from '../routes'
import { Frame, allowed } from './Frame'
import { Login } from './Login'

const pages = routes.map((route) => ({ route, page: lazy(route.load) }))

/** The whole console: the login, or the frame with a page in it. */
export function App() {
  const session = useSyncExternalStore(sessionStore.subscribe, sessionStore.get)
  const [away, setAway] = useState<Problem>()
  const ask = useMemo(() => () => { askSession().then(() => setAway(undefined), (err: unknown) => setAway(problem(err))) }, [])
  useEffect(ask, [ask])
  // A session that has ended shows the login, also in a window that only lies there.
  useEffect(() => {
    if (!session) return
    const timer = setInterval(() => { if (!document.hidden) askSession().catch(() => {}) }, 30_000)
    return () => clearInterval(timer)
  }, [session])
  return (
    <>
      <div id="live-polite" className="sr" aria-live="polite" />
      <div id="live-assertive" className="sr" aria-live="assertive" />
      {session === undefined ? (away ? <div className="login"><ProblemView problem={away} retry={ask} /></div> : <Skeleton lines={0} />)
        : session === null ? <Login />
        : <Frame key={`${session.tenant_id}/${session.subject}/${session.key_id ?? ''}`}><Pages /></Frame>}
      <Toasts />
    </>
  )
}

function Pages() {
  return (
    <Switch>
      <Route path="/login"><Redirect to={next()} replace /></Route>
      {pages.map(({ route, page: Shown }) => (
        <Route key={route.path} path={route.path}>
          {(params) => (
            <Guard key={route.path}>
              {allowed(route) ? <Suspense fallback={<Skeleton />}><Shown {...params} /></Suspense> : <Forbidden what={route.title} />}
            </Guard>
          )}
        </Route>
      ))}
      <Route path="/agents"><Page title="Agents and workflows"><Empty title="Not here yet">Agents and their workflows are shown here once Toolkeep runs them.</Empty></Page></Route>
      <Route><Page title="Nothing is here"><Empty title="There is no page at this address">It may have been mistyped. The navigation has all pages.</Empty></Page></Route>
    </Switch>
  )
}

function Forbidden({ what }: { what: string }) {
  return <Page title={what}><Empty title="Your role does not have this page">Ask an administrator of Toolkeep for a role that has the permission.</Empty></Page>
}

/** Where to go after the login: an own path, never another site. */
export function next(): string {
  const to = new URLSearchParams(location.search).get('next') ?? ''
  return /^\/(?![/\\])[^\\]*$/.test(to) && !to.startsWith('/login') ? to : '/'
}

// Guard shows what failed in a page, and leaves the frame as it is.
class Guard extends Component<{ children: ReactNode }, { failed?: Problem }> {
  override state: { failed?: Problem } = {}
  static getDerivedStateFromError(err: unknown) { return { failed: problem(err) } }
  override render() {
    if (!this.state.failed) return this.props.children
    return <Page title="This page failed"><ProblemView problem={this.state.failed} /><div><Button onClick={() => location.reload()}>Load it again</Button></div></Page>
  }
}
