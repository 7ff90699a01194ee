import { useId, useState } from 'react'
import { Field } from '../../parts/Field'
import { Icon } from '../../parts/Icon'
import './import.css'

/** A file that is dropped or chosen, or its text. */
export function Drop({ label, accept, value, onChange, onFault }: { label: string; accept: string; value: string; onChange: (text: string, name?: string) => void; onFault: (text: string) => void }) {
  const id = useId()
  const [over, setOver] = useState(false)
  async function take(files: FileList | null) {
    const file = files?.[0]
    if (!file) return
    if (file.size > 30_000_000) {
      onFault(`${file.name} has more than 30 MB`)
      return
    }
    onChange(await file.text(), file.name)
  }
  return (
    <div className="stack">
      <div className={over ? 'drop over' : 'drop'} onDragOver={(event) => { event.preventDefault(); setOver(true) }} onDragLeave={() => setOver(false)}
        onDrop={(event) => { event.preventDefault(); setOver(false); void take(event.dataTransfer.files) }}>
        <Icon name="down_tray" size={24} />
        <label htmlFor={id}>{label}: drop the file here, or choose it</label>
        <input id={id} type="file" accept={accept} onChange={(event) => void take(event.target.files)} />
      </div>
      {value.length <= 200_000 ? <Field label="Or its text" rows={8} mono value={value} onChange={(text) => onChange(text)} />
        : <p className="soft">{value.length.toLocaleString('en')} characters are ready. <button type="button" className="more" onClick={() => onChange('')}>Take another</button></p>}
    </div>
  )
}
