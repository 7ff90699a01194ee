import type { Route } from '../../routes'

export const routes: Route[] = [
  { path: '/', load: () => import('./Greet'), title: 'Welcome' },
]
