import type { Route } from '../../routes'

export const routes: Route[] = [
  { path: '/audit', load: () => import('./Events'), title: 'Audit', permission: 'invocations:read', nav: { group: 'Control', order: 20, icon: 'audit', key: 'u' } },
  { path: '/audit/chain', load: () => import('./Chain'), title: 'The chain of the audit', permission: 'invocations:read' },
  { path: '/audit/:id', load: () => import('./Entry'), title: 'Audit entry', permission: 'invocations:read' },
]
