import type { Route } from '../../routes'

export const routes: Route[] = [
  { path: '/connect', load: () => import('./Connect'), title: 'Connect', nav: { group: 'Tools', order: 40, icon: 'plug', key: 'n' } },
]
