/** One server-sent event. */
export interface Event { id: string; type: string; data: string }

/** Reads server-sent events out of text that comes in pieces. */
export class Reader {
  private rest = ''
  private type = ''
  private data: string[] = []
  /** The id of the last event, and the pause in ms that the server asked for. */
  id = ''
  retry?: number

  /** Takes a piece of text and returns the events that are whole now. */
  read(piece: string): Event[] {
    const lines = (this.rest + piece).split(/\r\n|\n|\r(?!$)/)
    this.rest = lines.pop() ?? ''
    const events: Event[] = []
    for (const line of lines) {
      if (line === '') {
        if (this.data.length > 0) events.push({ id: this.id, type: this.type || 'message', data: this.data.join('\n') })
        this.type = ''
        this.data = []
        continue
      }
      const colon = line.indexOf(':')
      const name = colon < 0 ? line : line.slice(0, colon)
      const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '')
      if (name === 'event') this.type = value
      else if (name === 'data') this.data.push(value)
      else if (name === 'id') this.id = value
      else if (name === 'retry' && /^[0-9]+$/.test(value)) this.retry = Number(value)
    }
    return events
  }
}
