import { useEffect } from 'react'

/** Sets the document's title while the page is shown. */
export function useTitle(title: string) {
  useEffect(() => { document.title = title === '' ? 'Toolkeep' : `${title} · Toolkeep` }, [title])
}
