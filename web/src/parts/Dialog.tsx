import { useState, type ReactNode } from 'react'
import { Dialog as AriaDialog, Heading, Modal, ModalOverlay } from 'react-aria-components'
import { problem, type Problem } from '../core/problem'
import { Button } from './Button'
import { Field } from './Field'
import { ProblemView } from './States'

/** What is asked above the page. Escape and a press beside it close it; the focus stays within and goes back. */
export function Dialog({ title, open, onClose, children, footer, wide, alert }: { title: string; open: boolean; onClose: () => void; children: ReactNode; footer?: ReactNode; wide?: boolean; alert?: boolean }) {
  return (
    <ModalOverlay className="overlay" isOpen={open} onOpenChange={(is) => { if (!is) onClose() }} isDismissable={!alert}>
      <Modal className={wide ? 'modal wide' : 'modal'}>
        <AriaDialog role={alert ? 'alertdialog' : 'dialog'} className="dialog">
          <Heading slot="title">{title}</Heading>
          <div className="body">{children}</div>
          <div className="footer">{footer ?? <Button onClick={onClose}>Close</Button>}</div>
        </AriaDialog>
      </Modal>
    </ModalOverlay>
  )
}

/** Asks before something is done, and shows why it failed. With a reason it asks for one, which is '' if none is given. */
export function Confirm({ title, open, onClose, children, action, tone = 'primary', reason, onConfirm }: {
  title: string
  open: boolean
  onClose: () => void
  children?: ReactNode
  /** The word on the button, which says what happens. */
  action: string
  tone?: 'primary' | 'bad'
  reason?: 'optional' | 'required'
  /** It is closed when this is done; what it throws is shown. */
  onConfirm: (reason: string) => Promise<unknown>
}) {
  const [text, setText] = useState('')
  const [busy, setBusy] = useState(false)
  const [failed, setFailed] = useState<Problem>()
  async function confirm() {
    setBusy(true)
    setFailed(undefined)
    try {
      await onConfirm(text.trim())
      setText('')
      onClose()
    } catch (err) {
      setFailed(problem(err))
    } finally {
      setBusy(false)
    }
  }
  function close() {
    setFailed(undefined)
    onClose()
  }
  return (
    <Dialog title={title} open={open} onClose={close} alert footer={<>
      <Button onClick={close}>Cancel</Button>
      <Button tone={tone} busy={busy} disabled={reason === 'required' && text.trim() === ''} onClick={confirm}>{action}</Button>
    </>}>
      {children}
      {reason && <Field label={reason === 'required' ? 'Reason' : 'Reason (optional)'} rows={2} value={text} onChange={setText} required={reason === 'required'} autoFocus />}
      {failed && <ProblemView problem={failed} />}
    </Dialog>
  )
}
