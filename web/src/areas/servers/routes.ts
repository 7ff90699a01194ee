import type { Route } from '../../routes'

export const routes: Route[] = [
  { path: '/servers', load: () => import('./Servers'), title: 'Servers', permission: 'system:operate', nav: { group: 'Operation', order: 3, icon: 'server', key: 's' } },
  { path: '/servers/:name', load: () => import('./Server'), title: 'Server', permission: 'system:operate' },
  { path: '/servers/:name/definitions', load: () => import('./Server'), title: 'Server', permission: 'system:operate' },
  { path: '/servers/:name/log', load: () => import('./Server'), title: 'Server', permission: 'system:operate' },
]
