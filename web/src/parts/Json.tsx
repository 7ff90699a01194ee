import { useMemo } from 'react'
import { write } from '../core/exact'
import { Copy } from './Copy'
import { Text } from './Text'

/** A value as JSON, with a button that copies it. */
export function Json({ value, label = 'JSON' }: { value: unknown; label?: string }) {
  const text = useMemo(() => write(value), [value])
  return (
    <div className="json">
      <Copy text={text} />
      {/* What scrolls can be reached by keyboard. */}
      <pre tabIndex={0} role="group" aria-label={label}><Text mono>{text}</Text></pre>{/* oxlint-disable-line jsx-a11y/no-noninteractive-tabindex */}
    </div>
  )
}
