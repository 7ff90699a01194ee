import type { Route } from '../../routes'

export const routes: Route[] = [
  { path: '/calls', load: () => import('./Calls'), title: 'Calls', nav: { group: 'Operation', order: 2, icon: 'calls', key: 'c' } },
  { path: '/calls/:id', load: () => import('./Call'), title: 'Call' },
]
