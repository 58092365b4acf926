// What ran when and why, above the staleness of tables on the same axis: from a minute to months.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { Curves, HUES, saw, type Line } from '../curve'
import { DAY, duration, HOUR, instant, MIN, plural } from '../format'
import { Gantt, markName, type Bars, type Mark } from '../gantt'
import { api, graph, levels, nowUs, picture, session, tick } from '../live'
import { At, Grid, Panel, TableLink, useDark } from '../ui'

const SPANS: [string, number][] = [['5m', 5 * MIN], ['30m', 30 * MIN], ['2h', 2 * HOUR], ['6h', 6 * HOUR], ['1d', DAY], ['7d', 7 * DAY], ['90d', 90 * DAY]]
const EMPTY: Bars = { table: [], job: [], track: [], start_us: [], end_us: [], failed: [], why: [], how: [] }
const MOST = 100_000
const CHUNK = 20_000

function join(older: Bars, newer: Bars): Bars {
  const known = new Set(newer.job)
  const keep = older.job.flatMap((job, i) => (known.has(job) ? [] : [i]))
  const found: any = {}
  for (const key of Object.keys(EMPTY) as (keyof Bars)[]) found[key] = keep.map((i) => older[key][i]).concat(newer[key] as any)
  return found
}
export function Time() {
  const [range, setRange] = useState<{ since: number; until: number; follow: boolean }>(() => ({ since: nowUs() - 2 * HOUR, until: nowUs(), follow: true }))
  const [bars, setBars] = useState<Bars>(EMPTY)
  const [marks, setMarks] = useState<Mark[]>([])
  const [covered, setCovered] = useState<{ from: number; to: number } | null>(null)
  const [problem, setProblem] = useState('')
  const [picked, setPicked] = useState<number | null>(null)
  const [tables, setTables] = useState<string[] | null>(null)
  const [curves, setCurves] = useState<Record<string, [number, number][]>>({})
  const loading = useRef(false)
  const dark = useDark()
  const second = tick.value
  const known = picture.value
  const now = nowUs()
  const width = range.until - range.since
  const { since, until } = range.follow ? { since: now - width, until: now } : range
  const shown = useMemo(() => {
    if (tables) return tables
    const pressed = [...levels.peek()].filter(([, one]) => one.row.target_us !== null && one.stale !== null).sort((a, b) => b[1].stale! / b[1].row.target_us! - a[1].stale! / a[1].row.target_us!)
    return pressed.slice(0, 3).map(([name]) => name)
  }, [tables, known === null])

  // Loads what is missing of the stretch that is looked at, the newest part first, and then what happened since.
  useEffect(() => {
    if (loading.current || !known) return
    const wanted = { from: since - width * 0.5, to: Math.min(until, now) }
    const load = async (from: number, to: number): Promise<void> => {
      const found = await api(`/v1/timeline?since_us=${Math.max(0, Math.round(from))}&until_us=${Math.max(0, Math.round(to))}&limit=${CHUNK * 2}`)
      setMarks((old) => [...new Map([...old, ...found.marks].map((mark: any) => [`${mark.at_us} ${mark.kind} ${mark.about}`, mark])).values()].sort((a, b) => a.at_us - b.at_us))
      setBars((old) => (old.table.length && found.start_us.length && found.start_us[0] >= old.start_us[0] ? join(old, found) : join(found, old)))
      setCovered((old) => ({ from: Math.min(old?.from ?? Infinity, found.whole ? from : found.since_us), to: Math.max(old?.to ?? 0, to) }))
      setProblem('')
    }
    const run = async () => {
      loading.current = true
      try {
        if (!covered || wanted.to < covered.from || wanted.from > covered.to) {
          setBars(EMPTY)
          setCovered(null)
          await load(wanted.from, wanted.to)
        } else if (since < covered.from && bars.table.length < MOST) await load(wanted.from, covered.from + 1)
        else if (wanted.to > covered.to + (range.follow ? 2e6 * (known.speed ?? 1) : 0)) await load(covered.to - 60e6, wanted.to)
      } catch (error) {
        setProblem(String(error instanceof Error ? error.message : error))
      }
      loading.current = false
    }
    void run()
  }, [since, until, covered, second, known === null])
  useEffect(() => {
    let still = true
    void Promise.all(shown.map(async (name) => [name, (await api(`/v1/tables/${encodeURIComponent(name)}/staleness`)).moves] as const)).then((found) => still && setCurves(Object.fromEntries(found)), () => {})
    return () => void (still = false)
  }, [shown, Math.floor(second / 5)])
  const grain = Math.floor(until / (width / 400))
  const lines = useMemo<Line[]>(() => {
    const hues = HUES[dark ? 'dark' : 'light']
    return shown.flatMap((name, i) => {
      const { xs, ys } = saw(curves[name] ?? [], since, Math.min(until, nowUs()))
      if (!xs.length) return []
      const target = known?.tables[name]?.target_us
      const found: Line[] = [{ label: name, xs, ys, colour: hues[i % hues.length] }]
      if (target && shown.length < 5) found.push({ label: `target of ${name}`, xs: [since / 1e6, until / 1e6], ys: [target / 1e6, target / 1e6], colour: hues[i % hues.length], dash: [5, 5], width: 1 })
      return found
    })
  }, [curves, grain, width, dark, shown])
  const change = (from: number, to: number) => {
    const span = to - from
    const end = Math.min(to, nowUs() + span * 0.05)
    setRange({ since: end - span, until: end, follow: Math.abs(end - nowUs()) < span * 0.02 })
  }
  const inView = bars.job.flatMap((_, i) => (bars.start_us[i] <= until && (bars.end_us[i] ?? now) >= since ? [i] : []))
  const failures = inView.filter((i) => bars.failed[i] === 1).length
  const busy = inView.reduce((sum, i) => sum + Math.max(0, Math.min(until, bars.end_us[i] ?? now) - Math.max(since, bars.start_us[i])), 0)
  const tracks = known?.tracks ?? session.value?.tracks ?? 1
  return (
    <>
      <Panel
        title={<h1>What ran, and why</h1>}
        more={
          <span class="more">
            <span class="switch" role="group" aria-label="How much time is shown">
              {SPANS.map(([label, span]) => <button aria-pressed={Math.abs(width - span) < span * 0.01} onClick={() => setRange({ since: until - span, until, follow: range.follow })}>{label}</button>)}
            </span>
            <button onClick={() => change(since - width / 2, until - width / 2)} aria-label="Earlier">←</button>
            <button onClick={() => change(since + width / 2, until + width / 2)} aria-label="Later">→</button>
            <button aria-pressed={range.follow} onClick={() => setRange({ since: nowUs() - width, until: nowUs(), follow: true })}>Now</button>
          </span>
        }
      >
        <p class="dim num">
          {instant(since, width < HOUR)} to {instant(until, width < HOUR)}: {plural(inView.length, 'update')}, {plural(failures, 'failure')}, tracks busy {Math.round((100 * busy) / Math.max(1, tracks * width))} % of the time
          {covered && covered.from > since + 1e6 && bars.table.length >= MOST && <>; only updates since {instant(covered.from)} are drawn, zoom in for older ones</>}
        </p>
        {problem && <p class="problem">{problem}</p>}
        <Gantt bars={bars} marks={marks} tracks={tracks} since={since} until={until} onRange={change} pick={setPicked} />
        {picked !== null && bars.table[picked] !== undefined && (
          <p class="note">
            <TableLink name={bars.table[picked]} /> ({bars.job[picked]}) ran from <At us={bars.start_us[picked]} />{bars.end_us[picked] !== null && ` for ${duration(bars.end_us[picked]! - bars.start_us[picked])}`}
            {bars.why[picked] && <>, because it {bars.why[picked]}</>}{bars.how[picked] && <> ({bars.how[picked]})</>}. <button class="plain" onClick={() => setPicked(null)} aria-label="Close">✕</button>
          </p>
        )}
        <h2 style="margin-top:.8rem">Staleness</h2>
        <div style="padding-left:0">
          {lines.length > 0 ? <Curves lines={lines} since={since} until={until} height={230} onRange={change} label={`Staleness of ${shown.join(', ')}`} /> : <p class="dim">choose tables to see their staleness here</p>}
        </div>
        <label class="inline">
          tables
          <select value="" onChange={(event) => event.currentTarget.value && setTables([...new Set([...shown, event.currentTarget.value])].slice(-6))}>
            <option value="">add one …</option>
            {graph.value?.tables.map((one) => <option value={one.name}>{one.name}</option>)}
          </select>
        </label>{' '}
        <span class="chips">{shown.map((name) => <span class="chip">{name} <button class="plain" aria-label={`without ${name}`} onClick={() => setTables(shown.filter((one) => one !== name))}>✕</button></span>)}</span>
      </Panel>
      <div class="cols" style="margin-top:.8rem">
        <Panel title="Outages, faults, guarantees">
          <Grid
            label="What else happened"
            rows={marks.filter((mark) => mark.at_us >= since && mark.at_us <= until).reverse()}
            keyOf={(mark) => `${mark.at_us}${mark.kind}${mark.about}`}
            first={12}
            empty="nothing in this time"
            columns={[
              { name: 'when', of: (mark) => <At us={mark.at_us} /> },
              { name: 'what', of: (mark) => markName(mark.kind) },
              { name: 'of', of: (mark) => mark.about, wrap: true },
              { name: 'because', of: (mark) => mark.what, wrap: true },
            ]}
          />
        </Panel>
        <Panel title="The same as a list">
          <Grid
            label="Updates in this time, the newest first"
            rows={inView.slice(-200).reverse()}
            keyOf={(i) => bars.job[i] + bars.start_us[i]}
            first={12}
            empty="nothing ran in this time"
            columns={[
              { name: 'table', of: (i) => <TableLink name={bars.table[i]} /> },
              { name: 'began', of: (i) => <At us={bars.start_us[i]} /> },
              { name: 'took', of: (i) => (bars.end_us[i] === null ? 'runs' : duration(bars.end_us[i]! - bars.start_us[i])), right: true },
              { name: 'track', of: (i) => bars.track[i], right: true },
              { name: 'because it', of: (i) => (bars.failed[i] === 1 ? <><b class="bad">failed: </b>{bars.how[i]}</> : bars.why[i]), wrap: true },
            ]}
          />
        </Panel>
      </div>
    </>
  )
}
