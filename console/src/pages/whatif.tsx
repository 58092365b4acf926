// What would have been with another policy, more tracks, more data or an outage; and what is proven.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { Curves, saw, type Line } from '../curve'
import { age, duration, instant, plural } from '../format'
import { api, session } from '../live'
import { act, Grid, Panel, TableLink, Told, useLoad } from '../ui'
import { path } from '../main'

export function WhatIf() {
  if (!session.value) return <p class="dim">loading …</p>
  const tab = path.value.includes('?bounds') ? 'bounds' : path.value.includes('?tune') ? 'tune' : 'try'
  return (
    <>
      <div class="row">
        <h1>What if</h1>
        <nav class="row" aria-label="What if">
          <a class="button" href="#/what-if" aria-current={tab === 'try' ? 'page' : undefined}>Try it on the log</a>
          <a class="button" href="#/what-if?tune" aria-current={tab === 'tune' ? 'page' : undefined}>What to choose</a>
          <a class="button" href="#/what-if?bounds" aria-current={tab === 'bounds' ? 'page' : undefined}>What is proven</a>
        </nav>
      </div>
      {tab === 'bounds' ? <Bounds /> : <Try tune={tab === 'tune'} key={tab} />}
    </>
  )
}
interface Run { policy: string; tracks: number; seed: number; weighted_staleness_s: number; relative_lateness: number; targets_met: number | null; utilisation: number; updates: number; staleness_s: Record<string, number>; peak_s: Record<string, number>; target_s: Record<string, number | null>; met: Record<string, number | null> }
const share = (value: number | null | undefined) => (value === null || value === undefined ? '-' : `${Math.round(value * 100)} %`)
const seconds = (value: number | null | undefined) => (value === null || value === undefined ? '-' : age(value * 1e6))

function Try({ tune }: { tune: boolean }) {
  const own = session.value
  const [form, set] = useState({ policy: own?.policy ?? '', tracks: tune ? '1,2,4,8' : String(own?.tracks ?? 2), volume: '1', outage: '', seeds: tune ? '2' : '1' })
  const [told, setTold] = useState<any>(null)
  const number = useRef<number | null>(null)
  const running = told?.status === 'running'
  useEffect(() => {
    if (!running) return
    const timer = setInterval(() => void api(`/v1/trials/${number.current}`).then(setTold, () => {}), 400)
    return () => clearInterval(timer)
  }, [running])
  useEffect(() => () => {
    if (number.current) void api(`/v1/trials/${number.current}`, 'DELETE').catch(() => {})
  }, [])
  const begin = () =>
    act(async () => {
      const wish = {
        policies: tune || !form.policy.trim() ? [] : form.policy.split('\n').map((one) => one.trim()).filter(Boolean),
        tracks: form.tracks.split(',').map(Number).filter((n) => n > 0),
        volume: Number(form.volume) || 1,
        outages: form.outage.trim() ? form.outage.split(',').map((one) => one.trim()) : [],
        seeds: Number(form.seeds) || 1,
      }
      const found = await api('/v1/trials', 'POST', wish)
      number.current = found.trial
      setTold(found)
    })
  const rows: Run[] = told?.rows ?? []
  const was = told?.recorded
  const grouped = useMemo(() => {
    const by = new Map<string, Run[]>()
    for (const row of rows) by.set(`${row.policy}\n${row.tracks}`, [...(by.get(`${row.policy}\n${row.tracks}`) ?? []), row])
    const mean = (some: Run[], of: (run: Run) => number) => some.reduce((sum, run) => sum + of(run), 0) / some.length
    return [...by.values()].map((some) => ({
      policy: some[0].policy, tracks: some[0].tracks, some,
      stale: mean(some, (run) => run.weighted_staleness_s), late: mean(some, (run) => run.relative_lateness), met: some[0].targets_met === null ? null : mean(some, (run) => run.targets_met!), used: mean(some, (run) => run.utilisation), updates: mean(some, (run) => run.updates),
    }))
  }, [rows])
  const chosen = told?.advice && grouped.find((one) => one.policy === told.advice.policy && one.tracks === told.advice.tracks)
  return (
    <>
      <Panel title={tune ? 'Which policy, and how many tracks, from the own log' : 'The own log again, with other settings'}>
        <form class="row" onSubmit={(event) => { event.preventDefault(); void begin() }}>
          {!tune && (
            <label>Policies, one a line; none: one of each kind<br /><textarea rows={2} cols={44} value={form.policy} onInput={(event) => set({ ...form, policy: event.currentTarget.value })} /></label>
          )}
          <label>Tracks<br /><input value={form.tracks} onInput={(event) => set({ ...form, tracks: event.currentTarget.value })} size={10} placeholder="2,4,8" /></label>
          {!tune && (
            <>
              <label>Volume: {form.volume} times<br /><input type="range" min="0.25" max="4" step="0.25" value={form.volume} onInput={(event) => set({ ...form, volume: event.currentTarget.value })} /></label>
              <label>Outage<br /><input value={form.outage} onInput={(event) => set({ ...form, outage: event.currentTarget.value })} placeholder="10m..25m, or feed@10m..25m" size={24} /></label>
            </>
          )}
          <label>Seeds<br /><input type="number" min="1" max="10" value={form.seeds} onInput={(event) => set({ ...form, seeds: event.currentTarget.value })} style="width:4.5rem" /></label>
          <button class="primary" disabled={running}>Compute</button>
          {running && <button type="button" onClick={() => act(async () => setTold(await api(`/v1/trials/${number.current}`, 'DELETE')))}>Cancel</button>}
        </form>
        {running && (
          <p role="status">
            <progress max={told.of ?? 1} value={told.of ? told.done : undefined} style="width:16rem" aria-label="How far it is" /> {told.of ? `${told.done} of ${told.of} runs` : 'reading the log …'}
          </p>
        )}
        {told?.status === 'failed' && <p class="problem">{told.error}</p>}
        {told?.status === 'cancelled' && <p class="dim">cancelled</p>}
        {was && <p class="dim">{duration(was.seconds * 1e6)} of the log, from {instant(told.start_us)} to {instant(told.end_us)}: {plural(was.updates, 'update')}.</p>}
        {told?.advice && (
          <p class="good"><b>{told.advice.policy}</b> with {plural(told.advice.tracks, 'track')} is advised. <span class="dim">{told.advice.why}</span></p>
        )}
      </Panel>
      {was && (
        <Panel title="Runs">
          <Grid
            label="Runs, and how it was"
            rows={[{ policy: `as it was: ${was.policy}`, tracks: was.tracks, stale: was.weighted_staleness_s, late: null as number | null, met: was.targets_met, used: was.utilisation, updates: was.updates, some: [] as Run[] }, ...grouped]}
            keyOf={(one) => `${one.policy}${one.tracks}`}
            columns={[
              { name: 'policy', of: (one) => (one === (chosen as any) ? <b>✓ {one.policy}</b> : one.policy), wrap: true },
              { name: 'tracks', of: (one) => one.tracks, right: true },
              { name: 'weighted staleness', of: (one) => seconds(one.stale), right: true, sort: (one) => one.stale },
              { name: 'relative lateness', of: (one) => one.late?.toFixed(3) ?? '', right: true },
              { name: 'targets met', of: (one) => share(one.met), right: true, sort: (one) => one.met ?? 0 },
              { name: 'in use', of: (one) => share(one.used), right: true },
              { name: 'updates', of: (one) => Math.round(one.updates), right: true },
            ]}
          />
        </Panel>
      )}
      {told?.curves && Object.keys(told.curves).length > 0 && <Beside told={told} />}
      {chosen && (
        <Panel title="Every table against its target">
          <Grid
            label="Every table: as it was, and as it would be"
            rows={Object.keys(chosen.some[0].staleness_s)}
            keyOf={(name) => name}
            first={40}
            columns={[
              { name: 'table', of: (name) => <TableLink name={name} />, sort: (name) => name },
              { name: 'target', of: (name) => seconds(chosen.some[0].target_s[name]), right: true },
              { name: 'as it was', of: (name) => seconds(was.tables.find((one: any) => one.table === name)?.mean_s), right: true },
              { name: 'in target', of: (name) => share(was.tables.find((one: any) => one.table === name)?.met), right: true },
              { name: 'would be', of: (name) => seconds(chosen.some[0].staleness_s[name]), right: true, sort: (name) => chosen.some[0].staleness_s[name] },
              { name: 'in target', of: (name) => share(chosen.some[0].met[name]), right: true, sort: (name) => chosen.some[0].met[name] ?? 2 },
              { name: 'peak', of: (name) => seconds(chosen.some[0].peak_s[name]), right: true },
            ]}
          />
        </Panel>
      )}
    </>
  )
}
/** The simulated curve beside the real one. */
function Beside({ told }: { told: any }) {
  const names = Object.keys(told.curves)
  const [name, set] = useState(names[0])
  const shown = told.curves[name] ? name : names[0]
  const real = useLoad(() => api(`/v1/tables/${encodeURIComponent(shown)}/staleness`), [shown])
  const lines = useMemo<Line[]>(() => {
    const would = saw(told.curves[shown], told.start_us, told.end_us)
    const found: Line[] = [{ label: `would be: ${told.advice.policy}, ${told.advice.tracks} tracks`, ...would }]
    if (real.data) found.push({ label: 'as it was', ...saw(real.data.moves, told.start_us, told.end_us), dash: [3, 3] })
    const target = told.targets_us[shown]
    if (target) found.push({ label: 'target', xs: [told.start_us / 1e6, told.end_us / 1e6], ys: [target / 1e6, target / 1e6], dash: [8, 4], width: 1 })
    return found
  }, [shown, real.data, told])
  return (
    <Panel
      title="Staleness: as it would be beside as it was"
      more={<label class="inline">table <select value={shown} onChange={(event) => set(event.currentTarget.value)}>{names.map((one) => <option>{one}</option>)}</select></label>}
    >
      <Curves lines={lines} since={told.start_us} until={told.end_us} height={260} label={`Simulated and real staleness of ${shown}`} />
    </Panel>
  )
}
const OUTAGES = ['', '5m', '15m', '30m', '1h', '2h', '4h', '8h', '1d']
function Bounds() {
  const own = session.value?.tracks ?? 2
  const [outage, setOutage] = useState(4)
  const [tracks, setTracks] = useState(own)
  const said = OUTAGES[outage]
  const found = useLoad(() => api(`/v1/bounds?tracks=${tracks}${said ? `&outage=${said}` : ''}`), [outage, tracks])
  const report = found.data
  const verdicts = new Map<string, number>()
  for (const one of report?.guarantees ?? []) verdicts.set(one.verdict, (verdicts.get(one.verdict) ?? 0) + 1)
  return (
    <>
      <Panel title="What is proven of freshness, before anything happens">
        <div class="row">
          <label>Tracks: <b class="num">{tracks}</b>{tracks === own && ' (as now)'}<br /><input type="range" min="1" max={Math.max(16, own * 2)} value={tracks} onInput={(event) => setTracks(Number(event.currentTarget.value))} /></label>
          <label>All feeds out for: <b class="num">{said || 'no outage'}</b><br /><input type="range" min="0" max={OUTAGES.length - 1} value={outage} onInput={(event) => setOutage(Number(event.currentTarget.value))} aria-valuetext={said || 'no outage'} /></label>
        </div>
        <Told of={found}>
          {report && (
            <>
              <dl class="stat">
                <div><dt>load</dt><dd class="v" style="margin:0">{report.utilisation.toFixed(2)} of {plural(report.tracks, 'track')}</dd></div>
                {[...verdicts].map(([verdict, n]) => <div><dt>{verdict}</dt><dd class={`v verdict ${verdict.split(' ')[0]}`} style="margin:0">{plural(n, 'table')}</dd></div>)}
                {report.all_recovered_us !== null && <div><dt>after {said} all is recovered in</dt><dd class="v" style="margin:0">{duration(report.all_recovered_us)}</dd></div>}
              </dl>
              {!report.fits && <p class="warn">The tracks cannot do all that is reserved.</p>}
              <details>
                <summary>What this rests on</summary>
                <ul class="facts">{report.assumes.map((line: string) => <li>{line}</li>)}</ul>
              </details>
              {report.violated.map((one: any) => <p class="problem">{one.said}</p>)}
              {Object.entries(report.void).map(([name, one]: [string, any]) => <p class="warn">Nothing is promised of {name} now: {one.because}</p>)}
            </>
          )}
        </Told>
      </Panel>
      {report && (
        <Panel title="Every table, and what breaks the others">
          <Grid
            label="What is proven of every table"
            rows={report.guarantees}
            keyOf={(one: any) => one.table}
            columns={[
              { name: 'table', of: (one: any) => <TableLink name={one.table} />, sort: (one: any) => one.table },
              { name: 'verdict', of: (one: any) => <span class={`verdict ${one.verdict.split(' ')[0]}`}>{{ proven: '✓ ', expected: '✓ ', 'not proven': '✕ ' }[one.verdict as string]}{one.verdict}</span>, sort: (one: any) => one.verdict },
              { name: 'target', of: (one: any) => duration(one.target_us), right: true, sort: (one: any) => one.target_us ?? 0 },
              { name: 'bound', of: (one: any) => (one.bound ? duration(one.bound.staleness_us) : '-'), right: true, sort: (one: any) => one.bound?.staleness_us ?? 1e18 },
              { name: 'recovered in', of: (one: any) => duration(one.recovery_us), right: true, sort: (one: any) => one.recovery_us ?? 0 },
              { name: 'cost', of: (one: any) => <span title={one.cost_from}>{duration(one.cost_us)}</span>, right: true, sort: (one: any) => one.cost_us ?? 0 },
              { name: 'what breaks it, and what would help', of: (one: any) => (one.breaks ? <>{one.breaks}{one.remedies.length > 0 && <span class="dim"> ({one.remedies.join('; ')})</span>}</> : ''), wrap: true },
            ]}
          />
        </Panel>
      )}
    </>
  )
}
