import { may } from '../../core/session'

/** The views of the access that the one who is logged in may see. */
export function tabs() {
  return [
    ...(may('keys:admin') ? [{ href: '/access', label: 'Keys' }, { href: '/access/roles', label: 'Roles' }, { href: '/access/rights', label: 'Who may what' }] : []),
    { href: '/access/secrets', label: 'Secrets' },
    ...(may('system:operate') ? [{ href: '/access/policy', label: 'Policy' }] : []),
  ]
}
