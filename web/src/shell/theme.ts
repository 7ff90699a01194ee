export type Theme = 'system' | 'light' | 'dark'
const name = 'toolkeep.theme'

export function theme(): Theme {
  const kept = localStorage.getItem(name)
  return kept === 'light' || kept === 'dark' ? kept : 'system'
}

export function setTheme(to: Theme) {
  if (to === 'system') {
    localStorage.removeItem(name)
    delete document.documentElement.dataset.theme
  } else {
    localStorage.setItem(name, to)
    document.documentElement.dataset.theme = to
  }
}

setTheme(theme())
