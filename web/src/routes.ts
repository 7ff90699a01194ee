import type { ComponentType } from 'react'
import type { IconName } from './parts/Icon'

/** A page: where it is, what shows it, who finds it in the navigation. */
export interface Route {
  /** As wouter has it: "/tools/:id". Written as a literal, since the server is told of it by build.mjs. */
  path: string
  load: () => Promise<{ default: ComponentType<any> }> // oxlint-disable-line typescript/no-explicit-any
  /** For the navigation. */
  title: string
  /** Only for those who have one of these permissions; the server decides all the same. */
  permission?: string | string[]
  /** Whether the server has what the page is about. */
  when?: () => boolean
  nav?: { group: 'Tools' | 'Operation' | 'Control'; order: number; icon: IconName; key?: string }
}

// Each area says its own routes.
const areas = import.meta.glob<{ routes: Route[] }>('./areas/*/routes.ts', { eager: true })
export const routes: Route[] = Object.values(areas).flatMap((area) => area.routes)
