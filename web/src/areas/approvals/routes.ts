import type { Route } from '../../routes'

export const routes: Route[] = [
  { path: '/approvals', load: () => import('./Inbox'), title: 'Approvals', nav: { group: 'Control', order: 10, icon: 'approve', key: 'a' } },
  { path: '/approvals/standing', load: () => import('./Standing'), title: 'Standing approvals' },
  { path: '/approvals/:id', load: () => import('./Approval'), title: 'Approval' },
]
