import { session } from '../../core/session'
import type { Route } from '../../routes'

export const routes: Route[] = [
  { path: '/queue', load: () => import('./Queue'), title: 'Queue', nav: { group: 'Operation', order: 4, icon: 'queue', key: 'q' } },
  { path: '/limits', load: () => import('./Limits'), title: 'Limits and breakers', permission: 'system:operate', nav: { group: 'Operation', order: 5, icon: 'gauge', key: 'l' } },
  { path: '/system', load: () => import('./System'), title: 'System', permission: 'system:operate', when: () => session().operator, nav: { group: 'Operation', order: 6, icon: 'system' } },
]
