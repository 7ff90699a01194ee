import type { Tab } from '../../parts/Page'

/** The views of the overview. */
export const tabs: Tab[] = [{ href: '/overview', label: 'Calls' }, { href: '/overview/finding', label: 'Finding tools' }]
