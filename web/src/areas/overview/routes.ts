import type { Route } from '../../routes'

export const routes: Route[] = [
  { path: '/overview', load: () => import('./Overview'), title: 'Overview', permission: 'invocations:read', nav: { group: 'Operation', order: 1, icon: 'chart', key: 'o' } },
  { path: '/overview/finding', load: () => import('./Finding'), title: 'Finding tools', permission: 'invocations:read' },
]
