/** What a wide table stands in: it scrolls sideways, also by the keyboard. `<div {...scrolls('Keys')}>` */
export const scrolls = (label: string) => ({ className: 'scrolls', role: 'group', 'aria-label': label, tabIndex: 0 })
