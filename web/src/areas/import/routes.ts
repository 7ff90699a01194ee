import type { Route } from '../../routes'

export const routes: Route[] = [
  { path: '/import', load: () => import('./OpenAPI'), title: 'Import', permission: ['catalog:publish', 'servers:admin'], nav: { group: 'Tools', order: 30, icon: 'down_tray', key: 'i' } },
  { path: '/import/mcp', load: () => import('./Servers'), title: 'Import MCP servers', permission: 'servers:admin' },
]
