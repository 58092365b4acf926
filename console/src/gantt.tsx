// Tracks over time on a canvas. Bars narrower than a pixel are merged into the share of busy time; zooming is in time only.
import { useEffect, useRef, useState } from 'preact/hooks'
import { clock, duration, instant, S } from './format'
import { nowUs } from './live'
import { useDark } from './ui'

export interface Bars { table: string[]; job: string[]; track: number[]; start_us: number[]; end_us: (number | null)[]; failed: number[]; why: string[]; how: string[] }
export interface Mark { at_us: number; kind: string; about: string; what: string }
const LANE = 26
const TOP = 22
const LEFT = 62
// Colours of its own: they say which table, not how fresh it is.
const PALETTE = { light: ['#3f6f9f', '#7a9cc0', '#5b7f6b', '#8fae9b', '#8a6d9c', '#b39ac2', '#9c7b4f', '#c2a57c'], dark: ['#6f9fce', '#4d749c', '#82ad95', '#567a66', '#b394c6', '#7c638c', '#c7a677', '#8d7247'] }
const BAD = { light: '#c4230c', dark: '#ff7a5c' }
const MARKS: Record<string, string> = {
  'feed-went-out': 'feed out', 'feed-came-back': 'feed back', 'feed-paused': 'paused', 'feed-resumed': 'resumed', 'fault-met': 'fault', 'fault-ended': 'fault ended',
  'guarantee-voided': 'guarantee void', 'guarantee-renewed': 'guarantee holds again', 'run-started': 'process took over',
}
export const markName = (kind: string) => MARKS[kind] ?? kind

export function Gantt({ bars, marks, tracks, since, until, onRange, pick }: {
  bars: Bars; marks: Mark[]; tracks: number; since: number; until: number; onRange: (since: number, until: number) => void; pick: (index: number) => void
}) {
  const canvas = useRef<HTMLCanvasElement>(null)
  const dark = useDark()
  const [tip, setTip] = useState<{ x: number; y: number; bar?: number; mark?: number } | null>(null)
  const lanes = useRef<Int32Array[]>([])
  const hue = useRef(new Map<string, number>())
  const range = useRef({ since, until })
  range.current = { since, until }
  useEffect(() => {
    // Of each track the bars in the order of time, so that what is seen is found by halving.
    const by: number[][] = Array.from({ length: tracks }, () => [])
    for (let i = 0; i < bars.table.length; i++) {
      ;(by[bars.track[i]] ??= []).push(i)
      if (!hue.current.has(bars.table[i])) hue.current.set(bars.table[i], hue.current.size)
    }
    lanes.current = by.map((some) => Int32Array.from((some ?? []).sort((a, b) => bars.start_us[a] - bars.start_us[b])))
  }, [bars, tracks])
  const number = Math.max(tracks, lanes.current.length)
  const height = TOP + number * LANE + 4
  const xOf = (us: number, width: number) => LEFT + ((us - since) / (until - since)) * (width - LEFT)
  function firstAfter(lane: Int32Array, us: number): number {
    let [low, high] = [0, lane.length]
    while (low < high) {
      const middle = (low + high) >> 1
      const end = bars.end_us[lane[middle]] ?? Infinity
      if (end < us) low = middle + 1
      else high = middle
    }
    return low
  }
  useEffect(() => {
    const frame = requestAnimationFrame(() => {
      const element = canvas.current
      if (!element) return
      const width = element.clientWidth
      const ratio = Math.min(2, devicePixelRatio || 1)
      element.width = Math.round(width * ratio)
      element.height = Math.round(height * ratio)
      const g = element.getContext('2d')!
      g.scale(ratio, ratio)
      const ink = dark ? '#e8eaed' : '#15181c'
      const dim = dark ? '#a3adb8' : '#55606b'
      const palette = PALETTE[dark ? 'dark' : 'light']
      const bad = BAD[dark ? 'dark' : 'light']
      g.clearRect(0, 0, width, height)
      g.font = '11px system-ui, sans-serif'
      const step = [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800, 2592000].find((s) => ((until - since) / S / s) * 90 < width) ?? 2592000
      g.textAlign = 'center'
      for (let at = Math.ceil(since / S / step) * step * S; at < until; at += step * S) {
        const x = xOf(at, width)
        g.fillStyle = dark ? '#2a313a' : '#e4e8ec'
        g.fillRect(x, TOP - 4, 1, height)
        g.fillStyle = dim
        if (x > LEFT + 24 && x < width - 24) g.fillText(step >= 86400 ? instant(at).slice(5, 10) : step >= 60 ? clock(at).slice(0, 5) : clock(at), x, 12)
      }
      for (let lane = 0; lane < number; lane++) {
        const y = TOP + lane * LANE
        g.textAlign = 'left'
        g.fillStyle = dim
        g.fillText(`track ${lane}`, 0, y + 16)
        g.fillStyle = dark ? '#12161b' : '#f0f2f5'
        g.fillRect(LEFT, y + 2, width - LEFT, LANE - 5)
        const some = lanes.current[lane]
        if (!some) continue
        let column = -1
        let busy = 0
        let failedHere = false
        const flush = () => {
          if (column < 0) return
          g.globalAlpha = Math.min(1, 0.25 + 0.75 * busy)
          g.fillStyle = palette[0]
          g.fillRect(column, y + 2, 1, LANE - 5)
          g.globalAlpha = 1
          if (failedHere) {
            g.fillStyle = bad
            g.fillRect(column, y + LANE - 7, 2, 4)
          }
          column = -1
          busy = 0
          failedHere = false
        }
        for (let n = firstAfter(some, since); n < some.length; n++) {
          const i = some[n]
          const start = bars.start_us[i]
          if (start > until) break
          const end = bars.end_us[i] ?? Math.min(until, nowUs())
          const [x1, x2] = [Math.max(LEFT, xOf(start, width)), Math.min(width, xOf(end, width))]
          if (x2 - x1 < 1.5) {
            if (Math.floor(x1) !== column) {
              flush()
              column = Math.floor(x1)
            }
            busy += x2 - x1
            failedHere ||= bars.failed[i] === 1
            continue
          }
          flush()
          g.fillStyle = palette[(hue.current.get(bars.table[i]) ?? 0) % palette.length]
          g.fillRect(x1, y + 2, Math.max(1, x2 - x1 - 0.6), LANE - 5)
          if (bars.failed[i] === 1) {
            g.fillStyle = bad
            g.fillRect(x1, y + LANE - 8, Math.max(3, x2 - x1 - 0.6), 5)
          }
          if (bars.end_us[i] === null) {
            g.strokeStyle = ink
            g.setLineDash([4, 3])
            g.strokeRect(x1 + 0.5, y + 2.5, x2 - x1 - 1, LANE - 6)
            g.setLineDash([])
          }
          if (x2 - x1 > 34) {
            g.save()
            g.beginPath()
            g.rect(x1 + 3, y, x2 - x1 - 6, LANE)
            g.clip()
            g.fillStyle = dark ? '#0d1013' : '#fff'
            g.textAlign = 'left'
            if (!dark && [1, 3, 5, 7].includes((hue.current.get(bars.table[i]) ?? 0) % 8)) g.fillStyle = '#15181c'
            if (dark && [1, 3, 5, 7].includes((hue.current.get(bars.table[i]) ?? 0) % 8)) g.fillStyle = '#fff'
            g.fillText((bars.failed[i] === 1 ? '✕ ' : '') + bars.table[i], x1 + 4, y + 17)
            g.restore()
          }
        }
        flush()
      }
      for (const mark of marks) {
        if (mark.at_us < since || mark.at_us > until) continue
        const x = xOf(mark.at_us, width)
        const good = ['feed-came-back', 'feed-resumed', 'fault-ended', 'guarantee-renewed'].includes(mark.kind)
        g.fillStyle = mark.kind === 'run-started' ? dim : good ? (dark ? '#63d0a6' : '#1b6b3a') : bad
        g.fillRect(x, TOP - 4, 1.5, height)
        g.beginPath()
        g.moveTo(x - 4, TOP - 9)
        g.lineTo(x + 5, TOP - 9)
        g.lineTo(x + 0.7, TOP - 2)
        g.fill()
      }
      if (!performance.getEntriesByName('gantt drawn').length) performance.mark('gantt drawn')
    })
    return () => cancelAnimationFrame(frame)
  })
  const [, resized] = useState(0)
  useEffect(() => {
    const look = new ResizeObserver(() => resized((n) => n + 1))
    look.observe(canvas.current!)
    const element = canvas.current!
    const wheel = (event: WheelEvent) => {
      if (!event.ctrlKey && Math.abs(event.deltaX) < Math.abs(event.deltaY) && event.shiftKey) return
      event.preventDefault()
      const { since, until } = range.current
      const width = element.clientWidth - LEFT
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        const by = (event.deltaX / width) * (until - since)
        return onRange(since + by, until + by)
      }
      const share = Math.max(0, Math.min(1, (event.offsetX - LEFT) / width))
      const factor = Math.exp(event.deltaY * 0.0016)
      const span = Math.min(3 * 366 * 86400 * S, Math.max(20 * S, (until - since) * factor))
      const at = since + share * (until - since)
      onRange(at - share * span, at + (1 - share) * span)
    }
    element.addEventListener('wheel', wheel, { passive: false })
    return () => {
      look.disconnect()
      element.removeEventListener('wheel', wheel)
    }
  }, [onRange])
  function hit(x: number, y: number): { bar?: number; mark?: number } {
    const width = canvas.current!.clientWidth
    if (y < TOP) {
      const m = marks.findIndex((mark) => Math.abs(xOf(mark.at_us, width) - x) < 6)
      return m >= 0 ? { mark: m } : {}
    }
    const some = lanes.current[Math.floor((y - TOP) / LANE)]
    if (!some) return {}
    const at = since + ((x - LEFT) / (width - LEFT)) * (until - since)
    const slack = (2 / (width - LEFT)) * (until - since)
    for (let n = firstAfter(some, at - slack); n < some.length && bars.start_us[some[n]] <= at + slack; n++) return { bar: some[n] }
    return {}
  }
  const drag = useRef<{ x: number; since: number; until: number; moved: boolean } | null>(null)
  return (
    <div class="gantt">
      <canvas
        ref={canvas}
        style={{ height: `${height}px` }}
        tabIndex={0}
        role="img"
        aria-label={`What ran on ${number} tracks from ${instant(since, true)} to ${instant(until, true)}: ${bars.table.length} updates. Plus and minus zoom, arrow keys move; the list below says the same.`}
        onKeyDown={(event) => {
          const span = until - since
          const by = { ArrowLeft: -0.2, ArrowRight: 0.2 }[event.key]
          if (by) onRange(since + by * span, until + by * span)
          if (event.key === '+') onRange(since + span / 4, until - span / 4)
          if (event.key === '-') onRange(since - span / 2, until + span / 2)
        }}
        onPointerDown={(event) => {
          drag.current = { x: event.offsetX, since, until, moved: false }
          try { event.currentTarget.setPointerCapture(event.pointerId) } catch { /* it is gone already */ }
        }}
        onPointerMove={(event) => {
          if (drag.current) {
            const by = ((drag.current.x - event.offsetX) / (canvas.current!.clientWidth - LEFT)) * (drag.current.until - drag.current.since)
            if (Math.abs(drag.current.x - event.offsetX) > 3 || drag.current.moved) {
              drag.current.moved = true
              onRange(drag.current.since + by, drag.current.until + by)
            }
          } else {
            const found = hit(event.offsetX, event.offsetY)
            setTip(found.bar === undefined && found.mark === undefined ? null : { x: event.offsetX, y: event.offsetY, ...found })
          }
        }}
        onPointerUp={(event) => {
          if (drag.current && !drag.current.moved) {
            const found = hit(event.offsetX, event.offsetY)
            if (found.bar !== undefined) pick(found.bar)
          }
          drag.current = null
        }}
        onPointerLeave={() => setTip(null)}
      />
      {tip && (
        <div class="tip" style={{ left: Math.min(tip.x + 12, (canvas.current?.clientWidth ?? 800) - 330), top: tip.y + 16 }}>
          {tip.bar !== undefined && bars.table[tip.bar] !== undefined ? (
            <>
              <strong>{bars.table[tip.bar]}</strong> <span class="dim">{bars.job[tip.bar]}</span>
              <div>
                {clock(bars.start_us[tip.bar])}, {bars.end_us[tip.bar] === null ? `runs for ${duration(nowUs() - bars.start_us[tip.bar])}` : `took ${duration(bars.end_us[tip.bar]! - bars.start_us[tip.bar])}`}
                {bars.failed[tip.bar] === 1 && <b class="bad"> failed</b>}
              </div>
              {bars.why[tip.bar] && <div>because it {bars.why[tip.bar]}</div>}
              {bars.how[tip.bar] && <div class="dim">{bars.how[tip.bar]}</div>}
            </>
          ) : tip.mark !== undefined && marks[tip.mark] ? (
            <>
              <strong>{markName(marks[tip.mark].kind)}</strong> {marks[tip.mark].about}
              <div>{instant(marks[tip.mark].at_us, true)}</div>
              <div class="dim">{marks[tip.mark].what}</div>
            </>
          ) : null}
        </div>
      )}
    </div>
  )
}
