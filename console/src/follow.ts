// Follows the server's events, and knows the whole picture for those who come later.
import type { Picture } from './live'

export type Message =
  | { kind: 'picture'; picture: Picture; received: number }
  | { kind: 'change'; change: Record<string, unknown>; received: number }
  | { kind: 'lost'; since: number }
  | { kind: 'waiting' }

const SILENT_MS = 12_000
const AGAIN_MS = 1_500

export function applyChange(picture: Picture, change: Record<string, any>): Picture {
  const next: any = { ...picture }
  for (const [name, value] of Object.entries(change)) {
    if (name === 'tables' || name === 'feeds') next[name] = { ...next[name], ...value }
    else if (name.endsWith('_gone')) {
      const of = name.slice(0, -5)
      next[of] = { ...next[of] }
      for (const key of value) delete next[of][key]
    } else next[name] = value
  }
  return next
}

export function follow(tell: (message: Message) => void) {
  let picture: Picture | null = null
  let received = 0
  let lost: number | null = null
  let source: EventSource | null = null
  let heard = Date.now()

  function hear() {
    heard = Date.now()
    lost = null
  }
  function open() {
    source?.close()
    heard = Date.now()
    const opened = (source = new EventSource('/v1/live'))
    opened.addEventListener('picture', (event) => {
      hear()
      picture = JSON.parse(event.data) as Picture
      received = Date.now()
      tell({ kind: 'picture', picture, received })
    })
    opened.addEventListener('change', (event) => {
      if (!picture) return
      hear()
      const change = JSON.parse(event.data)
      picture = applyChange(picture, change)
      received = Date.now()
      tell({ kind: 'change', change, received })
    })
    opened.addEventListener('beat', (event) => {
      hear()
      if (!picture) return
      const beat = JSON.parse(event.data)
      picture = { ...picture, ...beat }
      received = Date.now()
      tell({ kind: 'change', change: beat, received })
    })
    opened.onerror = () => {
      miss()
      opened.close()
      if (source === opened) {
        source = null
        setTimeout(() => source ?? open(), AGAIN_MS)
      }
    }
  }
  function miss() {
    lost ??= Date.now()
    tell({ kind: 'lost', since: lost })
  }
  setInterval(() => {
    if (source && Date.now() - heard > SILENT_MS) {
      miss()
      open()
    }
  }, 2000)
  open()
  return {
    again: open,
    whole: (): Message =>
      lost !== null ? { kind: 'lost', since: lost } : picture ? { kind: 'picture', picture, received } : { kind: 'waiting' },
  }
}
