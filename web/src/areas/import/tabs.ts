import { may } from '../../core/session'

export function tabs() {
  return [
    ...(may('catalog:publish') ? [{ href: '/import', label: 'OpenAPI document' }] : []),
    ...(may('servers:admin') ? [{ href: '/import/mcp', label: 'MCP servers' }] : []),
  ]
}
