import type { ReactNode } from 'react'
import { FieldError, Input, Label, Text, TextArea, TextField } from 'react-aria-components'
import { useId } from 'react'

interface Shared { label: string; description?: ReactNode; error?: string; required?: boolean; disabled?: boolean }

/** A line of text, or with rows a text of several. */
export function Field({ label, description, error, required, disabled, type = 'text', value, onChange, rows, placeholder, autoFocus, autoComplete = 'off', readOnly, mono, hideLabel, onEnter }: Shared & {
  type?: 'text' | 'password' | 'number' | 'search' | 'email' | 'url' | 'datetime-local' | 'date'
  value: string
  onChange: (value: string) => void
  rows?: number
  placeholder?: string
  autoFocus?: boolean
  autoComplete?: string
  readOnly?: boolean
  mono?: boolean
  /** The label is there for screen readers alone. */
  hideLabel?: boolean
  onEnter?: () => void
}) {
  const look = mono ? 'input mono' : 'input'
  return (
    <TextField className="field" value={value} onChange={onChange} isInvalid={!!error} isRequired={required} isDisabled={disabled} isReadOnly={readOnly} type={rows ? undefined : type} autoFocus={autoFocus} autoComplete={autoComplete} validationBehavior="aria"
      onKeyDown={onEnter && ((event) => { if (event.key === 'Enter') { event.preventDefault(); onEnter() } })}>
      <Label className={hideLabel ? 'sr' : undefined}>{label}{required && <span aria-hidden="true"> *</span>}</Label>
      {rows ? <TextArea className={look} rows={rows} placeholder={placeholder} spellCheck={!mono} /> : <Input className={look} placeholder={placeholder} spellCheck={false} />}
      {description && <Text slot="description" className="description">{description}</Text>}
      <FieldError className="error">{error}</FieldError>
    </TextField>
  )
}

export interface Option { value: string; label: string; disabled?: boolean }

/** One of some values, in the system's own list, which telephones and screen readers know best. */
export function Select({ label, description, error, required, disabled, options, value, onChange, hideLabel }: Shared & { options: Option[]; value: string; onChange: (value: string) => void; hideLabel?: boolean }) {
  const id = useId()
  return (
    <div className="field">
      <label htmlFor={id} className={hideLabel ? 'sr' : undefined}>{label}{required && <span aria-hidden="true"> *</span>}</label>
      <select id={id} className="input" value={value} required={required} disabled={disabled} aria-invalid={!!error || undefined} aria-describedby={`${id}-d`} onChange={(event) => onChange(event.target.value)}>
        {options.map((option) => <option key={option.value} value={option.value} disabled={option.disabled}>{option.label}</option>)}
      </select>
      <span id={`${id}-d`}>{description && <span className="description">{description}</span>}{error && <span className="error">{error}</span>}</span>
    </div>
  )
}

/** Yes or no. */
export function Check({ label, description, checked, onChange, disabled }: { label: ReactNode; description?: ReactNode; checked: boolean; onChange: (checked: boolean) => void; disabled?: boolean }) {
  const id = useId()
  return (
    <div className="check">
      <input id={id} type="checkbox" checked={checked} disabled={disabled} aria-describedby={description ? `${id}-d` : undefined} onChange={(event) => onChange(event.target.checked)} />
      <label htmlFor={id}>{label}</label>
      {description && <span id={`${id}-d`} className="description">{description}</span>}
    </div>
  )
}
