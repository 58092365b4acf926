// The graph on a canvas: far out boxes, near cards. Arrow keys walk along its edges; the table beside it says the same.
import { effect, useSignal } from '@preact/signals'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { age, COLOURS, GLYPH, LEVEL_NAME, LEVELS, type Level } from './format'
import { BOX_H, BOX_W, type Placed } from './layout'
import { graph, levels, nowUs, picture, tick } from './live'
import { useDark } from './ui'

export interface Item { key: string; label: string; kind: 'table' | 'feed' | 'group'; members: string[] }
export type Folding = 'none' | 'prefix' | 'flow'

const worker = new Worker(new URL('./layout.worker.ts', import.meta.url), { type: 'module' })
let asked = 0
const cache = new Map<string, Placed>()
function layOut(key: string, count: number, edges: [number, number][], aspect: number): Promise<Placed> {
  const known = cache.get(key)
  if (known) return Promise.resolve(known)
  const id = ++asked
  return new Promise((done) => {
    const hear = (event: MessageEvent) => {
      if (event.data.id !== id) return
      worker.removeEventListener('message', hear)
      cache.set(key, event.data.placed)
      done(event.data.placed)
    }
    worker.addEventListener('message', hear)
    worker.postMessage({ id, count, edges, aspect })
  })
}
const WORST: Level[] = ['over', 'late', 'near', 'fresh', 'none']

function build(folding: Folding, open: Set<string>, around: string | null) {
  const known = graph.value
  const items: Item[] = []
  const edges: [number, number][] = []
  if (!known) return { items, edges }
  const place = new Map<string, number>()
  const at = new Map<string, number>()
  let tables = known.tables
  let feeds = known.feeds
  if (around) {
    const near = new Set([around])
    for (const step of [0, 1]) {
      for (const [a, b] of known.edges) if (near.has(step ? b : a) && (!step || b === around || near.has(b))) near.add(step ? a : b)
    }
    const up = new Set([around])
    const down = new Set([around])
    for (let i = 0; i < 30; i++) for (const [a, b] of known.edges) {
      if (up.has(b)) up.add(a)
      if (down.has(a)) down.add(b)
    }
    tables = tables.filter((t) => up.has(t.name) || down.has(t.name))
    feeds = feeds.filter((f) => f.tables.some((t) => up.has(t)))
  }
  const prefixes = new Map<string, number>()
  const prefix = (name: string) => name.split('_')[0]
  if (folding === 'prefix') for (const t of tables) prefixes.set(prefix(t.name), (prefixes.get(prefix(t.name)) ?? 0) + 1)
  const groupOf = (t: (typeof tables)[0]): string | null => {
    const found = folding === 'prefix' ? ((prefixes.get(prefix(t.name)) ?? 0) > 1 ? prefix(t.name) : null) : folding === 'flow' ? (t.flow ?? t.group) : null
    return found !== null && !open.has(found) ? found : null
  }
  const put = (key: string, item: Item) => {
    const known = place.get(key)
    if (known !== undefined) {
      items[known].members.push(...item.members)
      return known
    }
    place.set(key, items.length)
    items.push(item)
    return items.length - 1
  }
  for (const t of tables) {
    const group = groupOf(t)
    at.set(t.name, group ? put(`group ${group}`, { key: `group ${group}`, label: group, kind: 'group', members: [t.name] }) : put(t.name, { key: t.name, label: t.name, kind: 'table', members: [t.name] }))
  }
  const seen = new Set<string>()
  const link = (a: number, b: number) => {
    const key = `${a} ${b}`
    if (a !== b && !seen.has(key)) {
      seen.add(key)
      edges.push([a, b])
    }
  }
  const namesakes = new Set(tables.filter((t) => t.feed === t.name).map((t) => t.name))
  for (const feed of feeds) {
    // A base table that is called as its feed stands for it.
    const other = feed.tables.filter((t) => !namesakes.has(t) && at.has(t))
    if (!other.length || folding !== 'none') continue
    const n = put(`feed ${feed.name}`, { key: `feed ${feed.name}`, label: feed.name, kind: 'feed', members: [] })
    for (const t of other) link(n, at.get(t)!)
  }
  for (const [a, b] of known.edges) if (at.has(a) && at.has(b)) link(at.get(a)!, at.get(b)!)
  return { items, edges }
}

export function GraphView({ search }: { search: string }) {
  const canvas = useRef<HTMLCanvasElement>(null)
  const folding = useSignal<Folding>('none')
  const open = useSignal(new Set<string>())
  const around = useSignal<string | null>(null)
  const selected = useSignal<string | null>(null)
  const hovered = useSignal<{ key: string; x: number; y: number } | null>(null)
  const [placed, setPlaced] = useState<Placed | null>(null)
  const dark = useDark()
  const view = useRef({ x: 0, y: 0, scale: 1, fitted: false })
  const drawAt = useRef(0)
  const known = graph.value
  const built = useMemo(() => build(folding.value, open.value, around.value), [known, folding.value, open.value, around.value])
  const { items, edges } = built
  const near = useMemo(() => {
    const up = new Map<number, number[]>()
    const down = new Map<number, number[]>()
    for (const [a, b] of edges) {
      ;(down.get(a) ?? down.set(a, []).get(a)!).push(b)
      ;(up.get(b) ?? up.set(b, []).get(b)!).push(a)
    }
    return { up, down, index: new Map(items.map((item, i) => [item.key, i])) }
  }, [built])

  useEffect(() => {
    if (!items.length) return
    const box = canvas.current?.getBoundingClientRect()
    const key = items.map((item) => item.key).join() + edges.length
    let still = true
    void layOut(key, items.length, edges, box ? box.width / Math.max(200, box.height) : 1.9).then((found) => {
      if (!still) return
      view.current.fitted = false
      setPlaced(found)
      performance.mark('graph')
    })
    return () => void (still = false)
  }, [built])

  function fit() {
    const box = canvas.current?.getBoundingClientRect()
    if (!box || !placed) return
    const scale = Math.min(1.25, (box.width - 40) / placed.width, (box.height - 40) / placed.height)
    view.current = { scale, x: (box.width - placed.width * scale) / 2, y: (box.height - (placed.height - 14) * scale) / 2, fitted: true }
    draw()
  }
  function draw() {
    if (drawAt.current) return
    drawAt.current = requestAnimationFrame(() => {
      drawAt.current = 0
      paint()
    })
  }
  function levelOfItem(item: Item): { level: Level; stale: number | null; target: number | null; runs: boolean; waits: boolean; bad: boolean } {
    const known = levels.peek()
    let worst: Level = 'none'
    let stale: number | null = null
    let target: number | null = null
    let runs = false
    let waits = false
    let bad = false
    for (const name of item.members) {
      const found = known.get(name)
      if (!found) continue
      if (WORST.indexOf(found.level) < WORST.indexOf(worst) || item.members.length === 1) {
        worst = found.level
        stale = found.stale
        target = found.row.target_us
      }
      runs ||= found.row.running_us !== null
      waits ||= found.row.doing === 'pending'
      bad ||= found.row.doing === 'failed'
    }
    return { level: worst, stale, target, runs, waits, bad }
  }
  function paint() {
    const element = canvas.current
    if (!element || !placed) return
    const box = element.getBoundingClientRect()
    const ratio = Math.min(2, devicePixelRatio || 1)
    if (element.width !== Math.round(box.width * ratio) || element.height !== Math.round(box.height * ratio)) {
      element.width = Math.round(box.width * ratio)
      element.height = Math.round(box.height * ratio)
    }
    if (!view.current.fitted) return fit()
    const g = element.getContext('2d')!
    const { x: left, y: top, scale } = view.current
    const colours = COLOURS[dark ? 'dark' : 'light']
    const ink = dark ? '#e8eaed' : '#15181c'
    g.setTransform(ratio, 0, 0, ratio, 0, 0)
    g.clearRect(0, 0, box.width, box.height)
    g.translate(left, top)
    g.scale(scale, scale)
    const lit = new Set<number>()
    const chosen = selected.peek() !== null ? near.index.get(selected.peek()!) : undefined
    if (chosen !== undefined) {
      lit.add(chosen)
      for (const side of [near.up, near.down]) for (const other of side.get(chosen) ?? []) lit.add(other)
    }
    const wanted = search.trim().toLowerCase()
    const see = (i: number) =>
      placed.x[i] * scale + left < box.width && (placed.x[i] + BOX_W) * scale + left > 0 && placed.y[i] * scale + top < box.height && (placed.y[i] + BOX_H) * scale + top > 0
    g.lineWidth = Math.max(0.7, 0.7 / scale)
    for (const strong of [false, true]) {
      g.beginPath()
      for (const [a, b] of edges) {
        const isStrong = chosen !== undefined && (a === chosen || b === chosen)
        if (isStrong !== strong || (!see(a) && !see(b) && !isStrong)) continue
        const [x1, y1, x2, y2] = [placed.x[a] + BOX_W, placed.y[a] + BOX_H / 2, placed.x[b], placed.y[b] + BOX_H / 2]
        const bend = Math.max(24, Math.abs(x2 - x1) / 2)
        g.moveTo(x1, y1)
        g.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2, y2)
      }
      g.strokeStyle = strong ? ink : dark ? 'rgba(200,210,220,.4)' : 'rgba(60,70,85,.4)'
      if (strong) g.lineWidth = Math.max(1.6, 1.6 / scale)
      g.stroke()
    }
    const cards = scale > 0.72
    const names = !cards && scale > 0.36
    for (let i = 0; i < items.length; i++) {
      if (!see(i)) continue
      const item = items[i]
      const { level, stale, target, runs, waits, bad } = levelOfItem(item)
      const [x, y] = [placed.x[i], placed.y[i]]
      const faded = (wanted && !item.label.toLowerCase().includes(wanted) && !item.members.some((name) => name.toLowerCase().includes(wanted))) || (chosen !== undefined && !lit.has(i))
      g.globalAlpha = faded ? 0.22 : 1
      if (item.kind === 'feed') {
        const feed = picture.peek()?.feeds[item.label]
        const well = !feed || ['healthy', 'learning', 'not watched'].includes(feed.health)
        g.beginPath()
        g.roundRect(x, y + 6, BOX_W, BOX_H - 12, 16)
        g.fillStyle = dark ? '#20262e' : '#eef1f4'
        g.fill()
        g.lineWidth = well ? 1 : 2.5
        g.strokeStyle = well ? (dark ? '#5b6673' : '#9aa4af') : colours.late
        g.stroke()
        if (cards) {
          g.fillStyle = ink
          g.font = '12px system-ui, sans-serif'
          g.fillText(cut(g, `⇢ ${item.label}${well ? '' : ` ${feed!.health}`}`, BOX_W - 22), x + 12, y + BOX_H / 2 + 4)
        }
      } else if (cards) {
        g.beginPath()
        g.roundRect(x, y, BOX_W, BOX_H, 5)
        g.fillStyle = dark ? '#1b2027' : '#ffffff'
        g.fill()
        g.lineWidth = i === chosen ? 2.5 : 1
        g.strokeStyle = i === chosen ? ink : dark ? '#47505b' : '#c3cad2'
        g.stroke()
        if (item.kind === 'group') {
          g.strokeRect(x + 4, y + BOX_H, BOX_W - 8, 3)
        }
        g.fillStyle = colours[level]
        g.beginPath()
        g.roundRect(x, y, 22, BOX_H, [5, 0, 0, 5])
        g.fill()
        g.fillStyle = level === 'over' ? (dark ? '#15181c' : '#fff') : level === 'late' ? '#fff' : level === 'near' || dark ? '#15181c' : level === 'none' ? '#15181c' : '#fff'
        g.font = 'bold 13px system-ui, sans-serif'
        g.textAlign = 'center'
        g.fillText(GLYPH[level], x + 11, y + BOX_H / 2 + 5)
        g.textAlign = 'left'
        g.fillStyle = ink
        g.font = '600 12px system-ui, sans-serif'
        g.fillText(cut(g, item.kind === 'group' ? `${item.label} · ${item.members.length}` : item.label, BOX_W - 44), x + 29, y + 18)
        g.font = '11px system-ui, sans-serif'
        g.fillStyle = dark ? '#aab4bf' : '#4d5864'
        const text = bad ? 'failed' : stale === null ? 'not made yet' : target === null ? `${age(stale)} old` : `${age(stale)} of ${age(target)}`
        g.fillText(cut(g, text, BOX_W - 36), x + 29, y + 34)
      } else {
        g.fillStyle = colours[level]
        g.fillRect(x, y, BOX_W, BOX_H)
        if (level === 'late' || level === 'over' || bad) {
          g.lineWidth = 2 / scale
          g.strokeStyle = dark && level === 'over' ? '#e8590c' : '#15181c'
          g.strokeRect(x, y, BOX_W, BOX_H)
        }
        if (names) {
          g.fillStyle = level === 'near' || level === 'none' || (dark && level !== 'late') ? (dark && level === 'none' ? '#fff' : '#15181c') : '#fff'
          g.font = `${10.5 / scale}px system-ui, sans-serif`
          g.fillText(cut(g, `${GLYPH[level]} ${item.label}`, BOX_W - (runs || waits ? 30 : 12)), x + 6, y + BOX_H / 2 + 4 / scale)
        }
        if (i === chosen) {
          g.lineWidth = 3 / scale
          g.strokeStyle = ink
          g.strokeRect(x - 3 / scale, y - 3 / scale, BOX_W + 6 / scale, BOX_H + 6 / scale)
        }
      }
      if (runs || waits) {
        const r = cards ? 5 : Math.max(7, 2.2 / scale)
        g.beginPath()
        g.arc(cards || names ? x + BOX_W - 11 : x + BOX_W / 2, cards ? y + 14 : y + BOX_H / 2, r, 0, 7)
        g.lineWidth = cards ? 1.5 : Math.max(1.5, 1 / scale)
        const over = level === 'late' || level === 'over' ? (dark && level === 'over' ? '#15181c' : '#fff') : names && !(dark && level === 'none') ? '#15181c' : ink
        if (runs) {
          g.fillStyle = names ? over : ink
          g.fill()
          g.strokeStyle = dark ? '#15181c' : '#fff'
        } else g.strokeStyle = names ? over : ink
        if (runs || cards || names) g.stroke()
      }
      g.globalAlpha = 1
    }
    if (!performance.getEntriesByName('graph drawn').length) performance.mark('graph drawn')
  }
  useEffect(() => {
    // What changes in the picture is drawn without rendering the page again.
    const stop = effect(() => {
      levels.value
      tick.value
      selected.value
      draw()
    })
    const look = new ResizeObserver(() => {
      view.current.fitted = false
      draw()
    })
    if (canvas.current) look.observe(canvas.current)
    return () => {
      stop()
      look.disconnect()
    }
  }, [placed, dark, search, built])
  useEffect(() => {
    // The only match comes into view.
    const wanted = search.trim().toLowerCase()
    if (!wanted || !placed) return
    const exact = items.findIndex((item) => item.label.toLowerCase() === wanted)
    const hits = items.flatMap((item, i) => (item.label.toLowerCase().includes(wanted) ? [i] : []))
    const go = exact >= 0 ? exact : hits.length === 1 ? hits[0] : -1
    if (go >= 0) centre(go)
  }, [search, placed])

  function centre(i: number) {
    const box = canvas.current!.getBoundingClientRect()
    if (!placed) return
    const scale = Math.max(view.current.scale, 0.8)
    view.current = { ...view.current, scale, x: box.width / 2 - (placed.x[i] + BOX_W / 2) * scale, y: box.height / 2 - (placed.y[i] + BOX_H / 2) * scale }
    selected.value = items[i].key
    draw()
  }
  function zoom(factor: number, cx?: number, cy?: number) {
    const box = canvas.current!.getBoundingClientRect()
    const [x, y] = [cx ?? box.width / 2, cy ?? box.height / 2]
    const v = view.current
    const scale = Math.min(3, Math.max(0.02, v.scale * factor))
    view.current = { ...v, scale, x: x - ((x - v.x) * scale) / v.scale, y: y - ((y - v.y) * scale) / v.scale }
    draw()
  }
  function hit(event: { offsetX: number; offsetY: number }): number {
    if (!placed) return -1
    const v = view.current
    const [x, y] = [(event.offsetX - v.x) / v.scale, (event.offsetY - v.y) / v.scale]
    for (let i = items.length - 1; i >= 0; i--) if (x >= placed.x[i] && x <= placed.x[i] + BOX_W && y >= placed.y[i] && y <= placed.y[i] + BOX_H) return i
    return -1
  }
  function enter(i: number) {
    const item = items[i]
    if (item.kind === 'group') open.value = new Set([...open.value, item.label])
    else if (item.kind === 'table') location.hash = `#/table/${encodeURIComponent(item.label)}`
    else location.hash = '#/health'
  }
  const drag = useRef<{ x: number; y: number; moved: boolean } | null>(null)
  const pointers = useRef(new Map<number, { x: number; y: number }>())
  useEffect(() => {
    const element = canvas.current!
    const wheel = (event: WheelEvent) => {
      event.preventDefault()
      zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)), event.offsetX, event.offsetY)
    }
    element.addEventListener('wheel', wheel, { passive: false })
    return () => element.removeEventListener('wheel', wheel)
  }, [placed])
  function walk(key: string) {
    const from = selected.value !== null ? near.index.get(selected.value) : undefined
    if (!placed || !items.length) return
    if (from === undefined) return centre(0)
    const closest = (some: number[] | undefined, by: (i: number) => number) => some?.length && [...some].sort((a, b) => by(a) - by(b))[0]
    let to: number | 0 | undefined
    if (key === 'ArrowRight') to = closest(near.down.get(from), (i) => Math.abs(placed.y[i] - placed.y[from]))
    if (key === 'ArrowLeft') to = closest(near.up.get(from), (i) => Math.abs(placed.y[i] - placed.y[from]))
    if (key === 'ArrowUp' || key === 'ArrowDown') {
      const sign = key === 'ArrowUp' ? -1 : 1
      const some = items.flatMap((_, i) => (Math.abs(placed.x[i] - placed.x[from]) < BOX_W && (placed.y[i] - placed.y[from]) * sign > 1 ? [i] : []))
      to = closest(some, (i) => Math.abs(placed.y[i] - placed.y[from]))
    }
    if (typeof to === 'number' && to !== undefined && (to !== 0 || items.length)) centre(to)
  }
  const told = selected.value !== null ? items[near.index.get(selected.value) ?? -1] : undefined
  const toldLevel = told && told.kind !== 'feed' ? levelOfItem(told) : null
  const hover = hovered.value ? items[near.index.get(hovered.value.key) ?? -1] : undefined
  const hoverLevel = hover && hover.kind !== 'feed' ? levelOfItem(hover) : null
  const hoverRow = hover?.kind === 'table' ? picture.value?.tables[hover.label] : undefined
  const describe = (item: Item, found: ReturnType<typeof levelOfItem> | null) =>
    `${item.label}: ${found ? `${LEVEL_NAME[found.level]}${found.stale !== null ? `, ${age(found.stale)} old` : ''}${found.target !== null ? `, ${age(found.target)} allowed` : ''}` : 'a feed'}`
  return (
    <div class="graph">
      <div class="tools">
        <button onClick={() => { around.value = null; view.current.fitted = false; draw() }} title="See all of it">Fit</button>
        <button onClick={() => zoom(1.4)} aria-label="Closer">+</button>
        <button onClick={() => zoom(1 / 1.4)} aria-label="Farther">−</button>
        <label class="inline">
          fold
          <select value={folding.value} onChange={(event) => { folding.value = event.currentTarget.value as Folding; open.value = new Set() }}>
            <option value="none">nothing</option>
            <option value="prefix">by first word</option>
            <option value="flow">flows and groups</option>
          </select>
        </label>
        {told?.kind === 'table' && (
          <>
            <button aria-pressed={around.value === told.label} onClick={() => (around.value = around.value === told.label ? null : told.label)}>
              {around.value === told.label ? 'all tables' : 'only its lineage'}
            </button>
            <a class="button" href={`#/table/${encodeURIComponent(told.label)}`}>open {told.label}</a>
          </>
        )}
      </div>
      <canvas
        ref={canvas}
        tabIndex={0}
        role="img"
        aria-label="The graph of tables. Arrow keys walk along its edges, Enter opens a table; the list of all tables says the same."
        onKeyDown={(event) => {
          if (event.key.startsWith('Arrow')) { event.preventDefault(); walk(event.key) }
          else if (event.key === 'Enter' && told) enter(near.index.get(told.key)!)
          else if (event.key === '+') zoom(1.4)
          else if (event.key === '-') zoom(1 / 1.4)
          else if (event.key === 'Escape') selected.value = null
        }}
        onPointerDown={(event) => {
          pointers.current.set(event.pointerId, { x: event.offsetX, y: event.offsetY })
          drag.current = { x: event.offsetX, y: event.offsetY, moved: false }
          try { event.currentTarget.setPointerCapture(event.pointerId) } catch { /* it is gone already */ }
        }}
        onPointerMove={(event) => {
          const before = pointers.current.get(event.pointerId)
          if (before && pointers.current.size === 2) {
            const [other] = [...pointers.current].filter(([id]) => id !== event.pointerId).map(([, at]) => at)
            const was = Math.hypot(before.x - other.x, before.y - other.y)
            const is = Math.hypot(event.offsetX - other.x, event.offsetY - other.y)
            pointers.current.set(event.pointerId, { x: event.offsetX, y: event.offsetY })
            if (drag.current) drag.current.moved = true
            if (was > 0) zoom(is / was, (event.offsetX + other.x) / 2, (event.offsetY + other.y) / 2)
          } else if (drag.current && before) {
            const [dx, dy] = [event.offsetX - drag.current.x, event.offsetY - drag.current.y]
            if (drag.current.moved || Math.hypot(dx, dy) > 4) {
              view.current = { ...view.current, x: view.current.x + dx, y: view.current.y + dy }
              drag.current = { x: event.offsetX, y: event.offsetY, moved: true }
              draw()
            }
          } else {
            const i = hit(event)
            hovered.value = i >= 0 ? { key: items[i].key, x: event.offsetX, y: event.offsetY } : null
          }
        }}
        onPointerUp={(event) => {
          pointers.current.delete(event.pointerId)
          if (drag.current && !drag.current.moved) {
            const i = hit(event)
            selected.value = i >= 0 ? items[i].key : null
          }
          drag.current = null
        }}
        onPointerLeave={() => (hovered.value = null)}
        onDblClick={(event) => {
          const i = hit(event)
          if (i >= 0) enter(i)
        }}
      />
      {!placed && <p class="laying dim">laying out …</p>}
      {hover && hovered.value && (
        <div class="tip" style={{ left: Math.min(hovered.value.x + 14, (canvas.current?.clientWidth ?? 600) - 260), top: hovered.value.y + 14 }}>
          <strong>{hover.label}</strong>
          {hoverLevel ? (
            <div>
              <span class={`badge ${hoverLevel.level}`}>{GLYPH[hoverLevel.level]}</span> {hoverLevel.stale === null ? 'not made yet' : `${age(hoverLevel.stale)} old`}
              {hoverLevel.target !== null && `, ${age(hoverLevel.target)} allowed`}
            </div>
          ) : (
            <div>feed: {picture.value?.feeds[hover.label]?.health}</div>
          )}
          {hoverRow?.running_us != null && <div>runs for {age(nowUs() - hoverRow.running_us)}</div>}
          {hoverRow?.waits && <div class="dim">{hoverRow.waits}</div>}
          {hover.kind === 'group' && <div class="dim">{hover.members.length} tables; double-click opens the group</div>}
        </div>
      )}
      <div class="legend" aria-hidden="true">
        {LEVELS.map((level) => (
          <span>
            <span class={`badge ${level}`}>{GLYPH[level]}</span> {LEVEL_NAME[level]}
          </span>
        ))}
        <span><i class="dot" /> runs</span>
        <span><i class="dot ring" /> waits</span>
      </div>
      <p class="hidden" aria-live="polite">{told ? describe(told, toldLevel) : ''}</p>
    </div>
  )
}
function cut(g: CanvasRenderingContext2D, text: string, width: number): string {
  if (g.measureText(text).width <= width) return text
  let n = text.length
  while (n > 1 && g.measureText(text.slice(0, n) + '…').width > width) n--
  return text.slice(0, n) + '…'
}
