import { useEffect, useRef, useState, type FormEvent } from 'react'
import { useLocation } from 'wouter'
import { address } from '../core/api'
import { problem, type Problem } from '../core/problem'
import { logInByKey, logInByLink } from '../core/session'
import { useTitle } from '../core/title'
import { Button } from '../parts/Button'
import { Field } from '../parts/Field'
import { ProblemView } from '../parts/States'
import { Logo } from './Logo'

const ways = (document.querySelector<HTMLMetaElement>('meta[name=toolkeep-login]')?.content ?? 'key').split(' ')

/** The login: by an API key, by the link that the server printed, by the organisation's login. */
export function Login() {
  useTitle('Log in')
  const [path, navigate] = useLocation()
  const [key, setKey] = useState('')
  const [busy, setBusy] = useState(false)
  const [failed, setFailed] = useState<Problem>()
  const redeemed = useRef(false)

  // Other pages lead here and back again.
  useEffect(() => {
    if (path !== '/login') navigate(`/login?next=${encodeURIComponent(path + location.search)}`, { replace: true })
  }, [path, navigate])

  async function enter(how: () => Promise<void>) {
    setBusy(true)
    setFailed(undefined)
    try {
      await how()
    } catch (err) {
      setFailed(problem(err))
      setBusy(false)
    }
  }

  // A link has its token after the #, which no server and no log sees. It is taken out of the address at once.
  useEffect(() => {
    const token = location.hash.slice(1)
    if (!token || redeemed.current) return
    redeemed.current = true
    history.replaceState(history.state, '', location.pathname + location.search)
    void enter(() => logInByLink(token))
  }, [])

  function submit(event: FormEvent) {
    event.preventDefault()
    void enter(() => logInByKey(key.trim()))
  }

  return (
    <main className="login">
      <div className="card stack">
        <h1 className="row-of"><Logo /> Toolkeep</h1>
        <form className="stack" onSubmit={submit}>
          <Field label="API key" type="password" value={key} onChange={setKey} required autoFocus autoComplete="current-password" mono
            description={<>It is sent once and kept nowhere; the session ends with it. The command <code>toolkeep console</code> makes a link that needs no key.</>} />
          {failed && <ProblemView problem={failed} />}
          <Button type="submit" tone="primary" busy={busy} disabled={key.trim() === ''}>Log in</Button>
        </form>
        {ways.includes('oidc') && <a className="button" href={address(`api/v1/session/oidc?next=${encodeURIComponent(new URLSearchParams(location.search).get('next') ?? '/')}`)}>Log in with your organisation</a>}
      </div>
    </main>
  )
}
