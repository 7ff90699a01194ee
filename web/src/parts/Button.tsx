import type { ButtonHTMLAttributes } from 'react'
import { Icon, type IconName } from './Icon'

interface Props extends ButtonHTMLAttributes<HTMLButtonElement> { tone?: 'plain' | 'primary' | 'bad' | 'quiet'; busy?: boolean; icon?: IconName }

/** A button; while it is busy it takes no press and says so. */
export function Button({ tone = 'plain', busy, icon, children, disabled, className = '', ...rest }: Props) {
  return (
    <button type="button" {...rest} className={`button ${tone} ${className}`} disabled={disabled} aria-disabled={busy || undefined} aria-busy={busy || undefined}
      onClick={busy ? (event) => event.preventDefault() : rest.onClick}>
      {icon && <Icon name={icon} />}{children}
    </button>
  )
}
