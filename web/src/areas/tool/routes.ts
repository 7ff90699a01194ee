import type { Route } from '../../routes'

export const routes: Route[] = [
  { path: '/tools/:id/:view?', load: () => import('./Tool'), title: 'Tool' },
]
