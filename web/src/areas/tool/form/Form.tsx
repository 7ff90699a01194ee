import { createContext, useContext, useEffect, useId, useMemo, useRef, useState, type ReactNode, type RefObject } from 'react'
import { Exact, parse } from '../../../core/exact'
import { bytes } from '../../../core/format'
import { Button } from '../../../parts/Button'
import { Text } from '../../../parts/Text'
import { flat } from '../flat'
import { Missing, kindOf, label, range, read, start, wayOf, type Node, type Schema } from './schema'
import { below, json, numberOf, withMember, type Fault } from './value'

interface All { root: unknown; faults: Fault[]; secret: Set<string> }
const Whole = createContext<All>({ root: {}, faults: [], secret: new Set() })

interface FormProps {
  /** The tool's parameters_schema. */
  schema: unknown
  value: unknown
  onChange: (value: unknown) => void
  /** What is wrong, by JSON Pointer. */
  faults: Fault[]
  /** Pointers of the arguments that are never recorded: their text is hidden. */
  secret: string[]
}

/** A form for arguments, made of their schema. Remount it (key) where the value changes by other hands. */
export function Form({ schema, value, onChange, faults, secret }: FormProps) {
  const all = useMemo(() => ({ root: schema, faults, secret: new Set(secret) }), [schema, faults, secret])
  const node = useMemo(() => read(schema, schema), [schema])
  const general = faults.filter((f) => f.pointer === '')
  return (
    <Whole.Provider value={all}>
      <div className="tool-form">
        {general.length > 0 && <Faults list={general} />}
        {node.kind === 'object' && node.members.length === 0 && !node.extra
          ? <p className="soft">This tool takes no arguments.</p>
          : node.kind === 'object' ? <Control node={node} value={value} set={onChange} pointer="" name="arguments" />
          : <Labelled name="Arguments">{(id) => <Control node={node} value={value} set={onChange} pointer="" name="arguments" id={id} />}</Labelled>}
      </div>
    </Whole.Provider>
  )
}

// useFocus moves the focus after what had it has gone: to the first of the selector within.
function useFocus(within: RefObject<HTMLElement | null>): (selector: string) => void {
  const wanted = useRef('')
  useEffect(() => {
    if (wanted.current === '') return
    within.current?.querySelector<HTMLElement>(wanted.current)?.focus()
    wanted.current = ''
  })
  return (selector) => { wanted.current = selector }
}

const controls = 'input, select, textarea, button:not(.tool-form-small)'

interface PartProps { name: string; schema: Schema; value: unknown; set: (value: unknown) => void; pointer: string; required: boolean; remove?: () => void; up?: () => void }

// Part is one member or element with its name, what is said of it, and what is wrong with it.
function Part({ name, schema, value, set, pointer, required, remove, up }: PartProps) {
  const { root, faults } = useContext(Whole)
  const id = useId()
  const box = useRef<HTMLDivElement>(null)
  const focus = useFocus(box)
  const node = useMemo(() => read(schema, root), [schema, root])
  const own = faults.filter((f) => f.pointer === pointer)
  const about = [node.description && `${id}-about`, own.length > 0 && `${id}-fault`].filter(Boolean).join(' ') || undefined
  const group = node.kind === 'object' || node.kind === 'list' || (node.kind === 'union' && value !== undefined)
  const absent = value === undefined
  const kind = kindOf(node)
  const head = (
    <>
      <span className="tool-form-name"><Text most={200}>{name}</Text></span>{' '}
      {node.title && node.title !== name && <span className="soft"><Text most={200}>{node.title}</Text> </span>}
      <span className="tool-form-kind"><Text most={100}>{kind}</Text>{required ? ' · required' : ''}{node.deprecated ? ' · deprecated' : ''}</span>
    </>
  )
  const tools = (
    <span className="tool-form-tools">
      {node.kind === 'text' && node.format === '' && absent && node.least === 0 && <Small onClick={() => set('')} label={`${name}: send an empty text`}>send ""</Small>}
      {node.nullable && value !== null && <Small onClick={() => { focus('.tool-form-null button'); set(null) }} label={`${name}: send null`}>null</Small>}
      {up && <Small onClick={up} label={`${name}: move up`}>up</Small>}
      {remove ? <Small onClick={remove} label={`Remove ${name}`}>remove</Small>
        : !absent && !required && (group || value === null || value === '' || node.kind === 'json') && <Small onClick={() => { focus(controls); set(undefined) }} label={`${name}: do not send`}>do not send</Small>}
    </span>
  )
  const notes = (
    <>
      {node.description && <p className="tool-form-about" id={`${id}-about`}><Text most={600}>{node.description}</Text></p>}
      {own.length > 0 && <Faults list={own} id={`${id}-fault`} />}
    </>
  )
  if (value === null && node.kind !== 'nothing') {
    return <div ref={box} className="tool-form-part"><div className="tool-form-head">{head}{tools}</div>{notes}<p className="tool-form-null">null is sent. <Small onClick={() => { focus(controls); set(required ? start(schema, root) : undefined) }} label={`${name}: enter a value`}>enter a value</Small></p></div>
  }
  if (group || node.kind === 'union') {
    return (
      <div ref={box} role="group" className="tool-form-group" aria-labelledby={id} aria-describedby={about}>
        <div className="tool-form-head"><span id={id} className="tool-form-label">{head}</span>{tools}</div>
        {notes}
        {absent && !required
          ? <Button tone="quiet" onClick={() => { focus(controls); set(start(schema, root) ?? (node.kind === 'union' ? new Missing() : node.kind === 'list' ? [] : {})) }}>Add <Text most={100}>{name}</Text></Button>
          : <Control node={node} value={value} set={set} pointer={pointer} name={name} />}
      </div>
    )
  }
  return (
    <div ref={box} className="tool-form-part">
      <div className="tool-form-head"><label htmlFor={id} className="tool-form-label">{head}</label>{tools}</div>
      {node.description && <p className="tool-form-about" id={`${id}-about`}><Text most={600}>{node.description}</Text></p>}
      <Control node={node} value={value} set={set} pointer={pointer} name={name} id={id} about={about} wrong={own.length > 0} required={required} />
      {own.length > 0 && <Faults list={own} id={`${id}-fault`} />}
    </div>
  )
}

interface ControlProps {
  node: Node
  value: unknown
  set: (value: unknown) => void
  pointer: string
  name: string
  id?: string
  about?: string
  wrong?: boolean
  required?: boolean
}

function Control(props: ControlProps): ReactNode {
  const { node, value, set, id, about, wrong, required } = props
  const { secret } = useContext(Whole)
  const common = { id, 'aria-describedby': about, 'aria-invalid': wrong || undefined, 'aria-required': required || undefined }
  switch (node.kind) {
    case 'text': {
      const shown = typeof value === 'string' ? value : value instanceof Missing || value === undefined ? '' : label(value)
      const change = (text: string) => set(text === '' ? undefined : text)
      const hint = node.fallback !== undefined ? `default: ${flat(label(node.fallback))}` : hints[node.format] ?? (node.examples.length > 0 ? `such as ${flat(label(node.examples[0]), 80)}` : undefined)
      return (
        <>
          {node.secret || secret.has(props.pointer)
            ? <input {...common} type="password" autoComplete="off" value={shown} onChange={(e) => change(e.target.value)} />
            : node.format === 'date'
              ? <input {...common} type="date" value={shown} onChange={(e) => change(e.target.value)} />
              : node.format !== '' || (node.most !== undefined && node.most <= 64)
                ? <input {...common} type="text" inputMode={modes[node.format]} placeholder={hint} autoComplete="off" spellCheck={false} value={shown} onChange={(e) => change(e.target.value)} />
                : <textarea {...common} rows={node.long ? 4 : 1} placeholder={hint} autoComplete="off" spellCheck={false} value={shown} onChange={(e) => change(e.target.value)} />}
          {value === '' && <span className="soft"> An empty text is sent.</span>}
        </>
      )
    }
    case 'number':
      return <input {...common} type="text" inputMode={node.whole ? 'numeric' : 'decimal'} autoComplete="off" className="tool-form-number"
        placeholder={node.fallback !== undefined ? `default: ${flat(label(node.fallback))}` : range(node.minimum, node.maximum)}
        value={value === undefined ? '' : value instanceof Missing ? value.text : label(value)}
        onChange={(e) => set(e.target.value === '' ? undefined : numberOf(e.target.value) ?? new Missing(e.target.value))} />
    case 'truth':
      return (
        <select {...common} value={value === true ? 'true' : value === false ? 'false' : ''} onChange={(e) => set(e.target.value === '' ? undefined : e.target.value === 'true')}>
          <option value="">{required ? 'choose…' : node.fallback === undefined ? 'not sent' : `not sent (default: ${flat(label(node.fallback), 80)})`}</option>
          <option value="true">true</option>
          <option value="false">false</option>
        </select>
      )
    case 'choice': {
      if (required && node.values.length === 1 && value !== undefined && label(value) === label(node.values[0])) return <output id={id}>always <code><Text most={200}>{node.labels[0]!}</Text></code></output>
      const at = node.values.findIndex((one) => value !== undefined && label(one) === label(value))
      return (
        <select {...common} value={at} onChange={(e) => set(node.values[Number(e.target.value)])}>
          <option value={-1}>{value !== undefined && at < 0 ? `not a choice: ${flat(label(value), 80)}` : required ? 'choose…' : node.fallback === undefined ? 'not sent' : `not sent (default: ${flat(label(node.fallback), 80)})`}</option>
          {node.labels.map((one, i) => <option key={i} value={i}>{flat(one)}</option>)}
        </select>
      )
    }
    case 'nothing':
      return <span className="soft">{value === null ? 'null is sent.' : <Small onClick={() => set(null)} label={`${props.name}: send null`}>send null</Small>}</span>
    case 'file':
      return <File {...props} common={common} />
    case 'json':
      return <Raw value={value} set={set} common={common} why={node.why} />
    case 'object':
      return <Members {...props} node={node} />
    case 'list':
      return <List {...props} node={node} />
    case 'union':
      return <Union {...props} node={node} />
  }
}

type Of<K extends Node['kind']> = Omit<ControlProps, 'node'> & { node: Extract<Node, { kind: K }> }

const mostMembers = 100

function Members({ node, value, set, pointer, name }: Of<'object'>) {
  const { root } = useContext(Whole)
  const [adding, setAdding] = useState('')
  const [all, setAll] = useState(false)
  const object: Schema = typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Exact) && !(value instanceof Missing) ? (value as Schema) : {}
  const others = Object.keys(object).filter((key) => !node.members.some((m) => m.name === key))
  const shown = all ? node.members : node.members.slice(0, mostMembers)
  const extra = node.extra
  function add() {
    if (adding === '' || Object.hasOwn(object, adding)) return
    set(withMember(object, adding, start(extra ?? {}, root) ?? new Missing()))
    setAdding('')
  }
  return (
    <div className="tool-form-members">
      {shown.map((m) => <Part key={m.name} name={m.name} schema={m.schema} required={m.required} value={Object.hasOwn(object, m.name) ? object[m.name] : undefined} pointer={below(pointer, m.name)} set={(v) => set(withMember(object, m.name, v))} />)}
      {shown.length < node.members.length && <button type="button" className="more" onClick={() => setAll(true)}>{node.members.length - shown.length} more</button>}
      {others.map((key) => <Part key={key} name={key} schema={extra ?? {}} required={false} value={object[key]} pointer={below(pointer, key)} set={(v) => set(withMember(object, key, v ?? new Missing()))} remove={() => set(withMember(object, key, undefined))} />)}
      {extra && (
        <div className="tool-form-add">
          <input type="text" aria-label={`Name of another member of ${flat(name)}`} placeholder="name" autoComplete="off" value={adding} onChange={(e) => setAdding(e.target.value)} onKeyDown={(e) => { if (e.key === 'Enter') { e.preventDefault(); add() } }} />
          <Button tone="quiet" disabled={adding === ''} onClick={add}>Add member</Button>
        </div>
      )}
    </div>
  )
}

function List({ node, value, set, pointer, name }: Of<'list'>) {
  const { root } = useContext(Whole)
  const items: unknown[] = Array.isArray(value) ? value : []
  const box = useRef<HTMLDivElement>(null)
  const focus = useFocus(box)
  const schemaAt = (i: number): Schema => node.head[i] ?? node.items ?? {}
  const put = (i: number, v: unknown) => set(items.map((one, k) => (k === i ? v ?? new Missing() : one)))
  const swap = (i: number) => set(items.map((one, k) => (k === i ? items[i - 1] : k === i - 1 ? items[i] : one)))
  const room = (node.items !== null || items.length < node.head.length) && items.length < (node.most ?? Infinity)
  return (
    <div ref={box} className="tool-form-members">
      {items.map((one, i) => (
        // An element has no identity but its place.
        <Part key={`${items.length}-${i}`} name={`${name} ${i + 1}`} schema={schemaAt(i)} required value={one instanceof Missing && one.text === '' ? undefined : one} pointer={below(pointer, i)}
          set={(v) => put(i, v)} remove={() => { focus(':scope > .button'); set(items.filter((_, k) => k !== i)) }} up={i > 0 ? () => swap(i) : undefined} />
      ))}
      {room
        ? <Button tone="quiet" onClick={() => { focus(`:scope > :nth-child(${items.length + 1}) :is(${controls})`); set([...items, start(schemaAt(items.length), root) ?? new Missing()]) }}>Add <Text most={100}>{name}</Text> {items.length + 1}</Button>
        : <p className="soft">The list is full.</p>}
    </div>
  )
}

function Union({ node, value, set, pointer, name }: Of<'union'>) {
  const { root } = useContext(Whole)
  const id = useId()
  const [chosen, setChosen] = useState<number>()
  const way = chosen ?? (value === undefined || value instanceof Missing ? 0 : wayOf(node.ways, value, root))
  const schema = node.ways[way]!.schema
  const inner = useMemo(() => read(schema, root), [schema, root])
  return (
    <div className={['text', 'number', 'truth', 'choice', 'nothing'].includes(inner.kind) ? 'tool-form-union' : 'tool-form-members'}>
      <div className="tool-form-way">
        <label htmlFor={id}>Kind</label>
        <select id={id} value={way} onChange={(e) => { const i = Number(e.target.value); setChosen(i); set(start(node.ways[i]!.schema, root)) }}>
          {node.ways.map((one, i) => <option key={i} value={i}>{flat(one.label)}</option>)}
        </select>
      </div>
      {inner.description && <p className="tool-form-about"><Text most={600}>{inner.description}</Text></p>}
      <Labelled name={name}>{(labelId) => <Control key={way} node={inner} value={value instanceof Missing && value.text === '' ? undefined : value} set={set} pointer={pointer} name={name} id={labelId} />}</Labelled>
    </div>
  )
}

// Labelled names a control that has no label of its own in sight.
function Labelled({ name, children }: { name: string; children: (id: string) => ReactNode }) {
  const id = useId()
  return <><label htmlFor={id} className="sr"><Text most={200}>{name}</Text></label>{children(id)}</>
}

type Common = { id?: string; 'aria-describedby'?: string; 'aria-invalid'?: true; 'aria-required'?: true }

function Raw({ value, set, common, why }: { value: unknown; set: (v: unknown) => void; common: Common; why: string }) {
  const [text, setText] = useState(() => (value === undefined ? '' : value instanceof Missing ? value.text : json(value)))
  return (
    <>
      <textarea {...common} className="mono" rows={3} spellCheck={false} autoComplete="off" placeholder='JSON, such as {"a": 1} or "text"' value={text} onChange={(e) => {
        setText(e.target.value)
        if (e.target.value.trim() === '') return set(undefined)
        try { set(parse(e.target.value)) } catch { set(new Missing(e.target.value)) }
      }} />
      <p className="soft">As JSON: {why}.</p>
    </>
  )
}

const mostFile = 700_000

function File({ value, set, common }: ControlProps & { common: Common }) {
  const [name, setName] = useState('')
  const [fault, setFault] = useState('')
  async function take(file: globalThis.File | undefined) {
    setFault('')
    if (!file) return
    if (file.size > mostFile) {
      setFault(`${flat(file.name)} has ${bytes(file.size)}; a call takes files of at most ${bytes(mostFile)}.`)
      return
    }
    const raw = new Uint8Array(await file.arrayBuffer())
    let text = ''
    for (let i = 0; i < raw.length; i += 0x8000) text += String.fromCharCode(...raw.subarray(i, i + 0x8000))
    setName(file.name)
    set(btoa(text))
  }
  return (
    <div>
      <input {...common} type="file" onChange={(e) => void take(e.target.files?.[0])} />
      {typeof value === 'string' && <p className="soft"><Text most={100}>{name || 'A file'}</Text>: {bytes(Math.floor((value.replace(/=+$/, '').length * 3) / 4))} are sent as base64. <Small onClick={() => { set(undefined); setName('') }} label="Do not send the file">do not send</Small></p>}
      {fault && <p className="tool-form-fault" role="alert">{fault}</p>}
    </div>
  )
}

function Faults({ list, id }: { list: Fault[]; id?: string }) {
  return <div id={id}>{list.slice(0, 20).map((f, i) => <p key={i} className="tool-form-fault"><Text most={1000}>{f.message}</Text></p>)}</div>
}

function Small({ onClick, label: words, children }: { onClick: () => void; label: string; children: ReactNode }) {
  return <button type="button" className="tool-form-small" aria-label={flat(words)} onClick={onClick}>{children}</button>
}

const hints: Record<string, string> = { 'date-time': '2026-12-01T09:00:00Z', time: '09:00:00Z', email: 'name@example.com', uri: 'https://…', uuid: '00000000-0000-0000-0000-000000000000', ipv4: '192.0.2.1' }
const modes: Record<string, 'email' | 'url' | undefined> = { email: 'email', uri: 'url', url: 'url' }
