import type { Route } from '../../routes'

export const routes: Route[] = [
  { path: '/playground', load: () => import('./Playground'), title: 'Playground', nav: { group: 'Tools', order: 2, icon: 'play', key: 'p' } },
]
