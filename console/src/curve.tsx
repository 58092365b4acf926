// Curves of staleness and others, drawn by uPlot: a hundred thousand points stay smooth.
import { useEffect, useRef } from 'preact/hooks'
import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'
import { clock, duration, instant, zoneName } from './format'
import { useDark } from './ui'

export interface Line { label: string; xs: number[]; ys: (number | null)[]; colour?: string; dash?: number[]; fill?: boolean; bars?: boolean; width?: number }
export const HUES = { light: ['#1d5f94', '#b3541e', '#1b7f5c', '#8e3b8a', '#6b6b00', '#3f4fb0'], dark: ['#7cc0f5', '#ff9d5c', '#63d0a6', '#e08fdc', '#d8d060', '#9aa8ff'] }

/** From when on it was complete up to where, as a saw: staleness grows with the clock and falls when the edge moves. In seconds. */
export function saw(moves: [number, number][], sinceUs: number, untilUs: number): { xs: number[]; ys: number[] } {
  const xs: number[] = []
  const ys: number[] = []
  let edge: number | null = null
  const put = (at: number, value: number) => {
    xs.push(xs.length && at / 1e6 <= xs[xs.length - 1] ? xs[xs.length - 1] + 1e-4 : at / 1e6)
    ys.push(Math.max(0, value) / 1e6)
  }
  for (const [at, to] of moves) {
    if (at > untilUs) break
    if (at >= sinceUs) {
      if (edge !== null) {
        if (!xs.length) put(sinceUs, sinceUs - edge)
        put(at, at - edge)
      }
      put(at, at - to)
    }
    edge = to
  }
  if (edge !== null) {
    if (!xs.length) put(sinceUs, sinceUs - edge)
    put(untilUs, untilUs - edge)
  }
  return { xs, ys }
}

export function Curves({ lines, height = 200, since, until, label, unit = 'duration', onRange, numberX }: {
  lines: Line[]; height?: number; since?: number; until?: number; label: string; unit?: 'duration' | 'number'; onRange?: (since: number, until: number) => void; numberX?: boolean
}) {
  const box = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | null>(null)
  const dark = useDark()
  const range = useRef({ since, until })
  range.current = { since, until }
  const shape = lines.map((line) => line.label + (line.colour ?? '') + (line.dash ?? '')).join('|')
  useEffect(() => {
    const ink = dark ? '#a3adb8' : '#55606b'
    const grid = dark ? '#2a313a' : '#e4e8ec'
    const hues = HUES[dark ? 'dark' : 'light']
    const show = (value: number | null) => (value === null || value === undefined ? '-' : unit === 'duration' ? duration(Math.round(value * 1e6)) : value.toLocaleString('en-US'))
    const options: uPlot.Options = {
      width: box.current!.clientWidth || 600,
      height,
      padding: [8, 0, 0, 0],
      tzDate: (ts) => (zoneName() === 'UTC' ? uPlot.tzDate(new Date(ts * 1e3), 'Etc/UTC') : uPlot.tzDate(new Date(ts * 1e3), zoneName())),
      scales: {
        x: { time: !numberX, range: (_u, min, max) => [range.current.since !== undefined ? range.current.since / 1e6 : min, range.current.until !== undefined ? range.current.until / 1e6 : max] },
        y: { range: (_u, _min, max) => [0, (max || 1) * 1.08] },
      },
      cursor: { drag: { x: !!onRange, y: false, setScale: false } },
      axes: [
        {
          stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid }, space: 90,
          values: (_u, values, _axis, _space, step) => values.map((value) => (value === null ? '' : numberX ? value.toLocaleString('en-US') : step >= 86400 ? instant(value * 1e6).slice(5, 10) : step >= 60 ? clock(value * 1e6).slice(0, 5) : clock(value * 1e6))),
        },
        {
          stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid }, size: 62, values: (_u, values) => values.map(show),
          ...(unit === 'duration' ? { incrs: [0.1, 0.5, 1, 5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800, 2592000] } : {}),
        },
      ],
      series: [
        { value: (_u, value) => (value === null ? '-' : numberX ? String(value) : instant(value * 1e6, true)), label: numberX ? 'x' : 'at' },
        ...lines.map((line, i) => ({
          label: line.label,
          stroke: line.colour ?? hues[i % hues.length],
          width: line.width ?? 1.5,
          dash: line.dash,
          points: { show: false },
          spanGaps: true,
          fill: line.fill ? (line.colour ?? hues[i % hues.length]) + '22' : undefined,
          paths: line.bars ? uPlot.paths.bars!({ size: [0.7, 40] }) : undefined,
          value: (_u: uPlot, value: number | null) => show(value),
        })),
      ],
      hooks: {
        setSelect: [
          (u) => {
            if (u.select.width > 4 && onRange) onRange(u.posToVal(u.select.left, 'x') * 1e6, u.posToVal(u.select.left + u.select.width, 'x') * 1e6)
            u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false)
          },
        ],
      },
    }
    plot.current = new uPlot(options, data(lines), box.current!)
    const look = new ResizeObserver(() => box.current && plot.current?.setSize({ width: box.current.clientWidth, height }))
    look.observe(box.current!)
    return () => {
      look.disconnect()
      plot.current?.destroy()
      plot.current = null
    }
  }, [dark, shape, height, unit])
  useEffect(() => {
    plot.current?.setData(data(lines))
  }, [lines, since, until])
  return <div ref={box} role="img" aria-label={label} />
}
function data(lines: Line[]): uPlot.AlignedData {
  if (!lines.length) return [[]]
  if (lines.length === 1) return [lines[0].xs, lines[0].ys]
  return uPlot.join(lines.map((line) => [line.xs, line.ys])) as uPlot.AlignedData
}
