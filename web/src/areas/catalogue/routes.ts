import type { Route } from '../../routes'

export const routes: Route[] = [
  { path: '/tools', load: () => import('./Catalogue'), title: 'Catalogue', nav: { group: 'Tools', order: 1, icon: 'tools', key: 't' } },
]
