import type { Route } from '../../routes'

const anyone = ['keys:admin', 'secrets:admin', 'secrets:use', 'system:operate']

export const routes: Route[] = [
  { path: '/access', load: () => import('./Keys'), title: 'Access', permission: anyone, nav: { group: 'Control', order: 30, icon: 'access', key: 'k' } },
  { path: '/access/keys/:id', load: () => import('./Key'), title: 'Key', permission: 'keys:admin' },
  { path: '/access/roles', load: () => import('./Roles'), title: 'Roles', permission: 'keys:admin' },
  { path: '/access/secrets', load: () => import('./Secrets'), title: 'Secrets' },
  { path: '/access/rights', load: () => import('./Rights'), title: 'Who may what', permission: 'keys:admin' },
  { path: '/access/policy', load: () => import('./Policy'), title: 'Policy', permission: 'system:operate' },
]
