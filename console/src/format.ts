// Numbers, times and names as the commands print them.

export const S = 1e6
export const MIN = 60 * S
export const HOUR = 3600 * S
export const DAY = 86400 * S

const sig3 = (value: number) => String(Number(value.toPrecision(3)))

/** The two largest units of a duration. */
export function duration(us: number | null | undefined): string {
  if (us === null || us === undefined) return '-'
  if (us < 0) return '-' + duration(-us)
  if (us > 0 && us < 1000) return `${Math.round(us)}us`
  if (us > 0 && us < 999_500) return `${sig3(us / 1000)}ms`
  if (us < 10 * S) return `${sig3(us / S)}s`
  const s = Math.floor(us / S)
  const parts: [number, string][] = [
    [Math.floor(s / 86400), 'd'],
    [Math.floor(s / 3600) % 24, 'h'],
    [Math.floor(s / 60) % 60, 'm'],
    [s % 60, 's'],
  ]
  while (parts.length && !parts[0][0]) parts.shift()
  return parts.slice(0, 2).filter(([value]) => value).map(([value, unit]) => `${value}${unit}`).join(' ') || '0s'
}

/** A duration that ticks: no fractions of seconds, which would only flicker. */
export const age = (us: number | null | undefined) =>
  us === null || us === undefined ? '-' : duration(us < 10 * S ? Math.round(us / S) * S : us)

let zone = 'UTC'
let formats = new Map<string, Intl.DateTimeFormat>()
export function setZone(name: string) {
  zone = name
  formats = new Map()
}
export const zoneName = () => zone
function parts(us: number): Record<string, string> {
  let format = formats.get('all')
  if (!format) {
    format = new Intl.DateTimeFormat('sv-SE', {
      timeZone: zone, year: 'numeric', month: '2-digit', day: '2-digit', hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23',
    })
    formats.set('all', format)
  }
  return Object.fromEntries(format.formatToParts(us / 1000).map((part) => [part.type, part.value]))
}
/** In the zone of the warehouse, whoever looks. */
export function instant(us: number | null | undefined, seconds: 'auto' | boolean = 'auto'): string {
  if (us === null || us === undefined) return '-'
  if (us > 253e15) return 'the end of time'
  if (us < -62e15) return 'the beginning of time'
  const p = parts(us)
  const withSeconds = seconds === 'auto' ? p.second !== '00' : seconds
  return `${p.year}-${p.month}-${p.day} ${p.hour}:${p.minute}${withSeconds ? ':' + p.second : ''}`
}
export const clock = (us: number) => instant(us, true).slice(11)
export const day = (us: number) => instant(us, false).slice(0, 10)

export function bytes(n: number | null | undefined): string {
  if (n === null || n === undefined) return '-'
  const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB']
  let i = 0
  while (n >= 1000 && i < units.length - 1) {
    n /= 1000
    i++
  }
  return `${i ? sig3(n) : n} ${units[i]}`
}
export const count = (n: number | null | undefined) => (n === null || n === undefined ? '-' : n.toLocaleString('en-US'))
export const plural = (n: number, one: string, many = one + 's') => `${count(n)} ${n === 1 ? one : many}`

// How stale something is against its target: never by colour alone.
export type Level = 'fresh' | 'near' | 'late' | 'over' | 'none'
export const LEVELS: Level[] = ['fresh', 'near', 'late', 'over', 'none']
export const GLYPH: Record<Level, string> = { fresh: '✓', near: '!', late: '✕', over: '✕✕', none: '–' }
export const LEVEL_NAME: Record<Level, string> = {
  fresh: 'within target', near: 'near its target', late: 'late', over: 'over twice its target', none: 'no target',
}
export function levelOf(staleness: number | null, target: number | null): Level {
  if (target === null || target === undefined || staleness === null) return 'none'
  const part = staleness / Math.max(1, target)
  return part < 0.8 ? 'fresh' : part <= 1 ? 'near' : part <= 2 ? 'late' : 'over'
}
export const COLOURS: Record<'light' | 'dark', Record<Level, string>> = {
  light: { fresh: '#3b8bc9', near: '#f7d038', late: '#d9480f', over: '#6b0f3a', none: '#c5c9cf' },
  dark: { fresh: '#5aa9e6', near: '#ffd84d', late: '#e8590c', over: '#ffffff', none: '#4a515a' },
}
