import { useQueries, useQueryClient, type UseQueryResult } from '@tanstack/react-query'
import { useCallback, useEffect, useRef, useState } from 'react'

export interface ListPage<T> { rows: T[]; total: number; least?: boolean }

/**
 * A long list of which the pages are fetched that are to be seen: give `count`, `row` and `onRange` to Rows, and `first`
 * to States. While the key changes, as in a search, the rows before stay (`stale`).
 */
export function usePages<T>(key: readonly unknown[], fetchPage: (page: number, size: number, signal: AbortSignal) => Promise<ListPage<T>>, options: { size?: number; every?: number } = {}) {
  const size = options.size ?? 200
  const client = useQueryClient()
  const name = JSON.stringify(key)
  const [wanted, setWanted] = useState<{ name: string; pages: number[] }>({ name, pages: [0] })
  const pages = wanted.name === name ? wanted.pages : [0]
  const results = useQueries({
    queries: pages.map((page) => ({
      queryKey: [...key, 'page', page] as readonly unknown[],
      queryFn: ({ signal }: { signal: AbortSignal }) => fetchPage(page + 1, size, signal),
      refetchInterval: options.every,
      staleTime: 30_000,
    })),
  }) as UseQueryResult<ListPage<T>>[]
  const firstPage = client.getQueryData<ListPage<T>>([...key, 'page', 0])
  const some = results.find((result) => result.data)?.data ?? firstPage
  // The rows of the key before are shown until there are some of this one.
  const before = useRef<{ key: readonly unknown[]; total: number } | undefined>(undefined)
  const shown = some ? { key, total: some.total } : before.current
  useEffect(() => { if (some) before.current = { key, total: some.total } })

  const timer = useRef(0)
  const onRange = useCallback((first: number, last: number) => {
    clearTimeout(timer.current)
    timer.current = window.setTimeout(() => {
      const list: number[] = []
      for (let page = Math.floor(first / size); page <= Math.floor(last / size); page++) list.push(page)
      if (list.length > 0) setWanted((now) => (now.name === name && now.pages.join() === list.join() ? now : { name, pages: list }))
    }, 80)
  }, [name, size])
  useEffect(() => () => clearTimeout(timer.current), [])

  const row = (index: number): T | undefined => shown && client.getQueryData<ListPage<T>>([...shown.key, 'page', Math.floor(index / size)])?.rows[index % size]
  const first = results[0]!
  return {
    first: { ...first, data: first.data ?? (shown ? { rows: [], total: shown.total } : undefined) } as UseQueryResult<ListPage<T>>,
    count: shown?.total ?? 0,
    least: some?.least ?? false,
    stale: !some && !!shown,
    row,
    onRange,
  }
}
