// Ask, and say how soon and how fresh; how it ended and why; a chart of what came back.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { Curves, type Line } from '../curve'
import { age, count, duration, instant, plural } from '../format'
import { api, graph, session, tick } from '../live'
import { act, Grid, Panel, Told, useDark, useLoad } from '../ui'

export function Queries() {
  const box = useRef<HTMLDivElement>(null)
  const [sql, setSql] = useState(() => sessionStorage.getItem('sql') ?? '')
  const [contract, set] = useState({ within: '', fresh: '', lag: '', stale: 'mark', profile: '' })
  const [asked, setAsked] = useState<any>(null)
  const dark = useDark()
  const text = useRef(sql)
  text.current = sql
  const known = graph.value
  const busy = asked && !['done', 'failed', 'withdrawn'].includes(asked.status)
  const run = () =>
    act(async () => {
      sessionStorage.setItem('sql', text.current)
      const body: any = { sql: text.current, stale: form.current.stale }
      for (const name of ['within', 'fresh', 'profile'] as const) if (form.current[name].trim()) body[name] = form.current[name].trim()
      if (form.current.lag.trim()) body.lag = Number(form.current.lag)
      if (!body.within && !body.fresh && body.lag === undefined) body.fresh = '10000d'
      setAsked({ status: 'asked', steps: [] })
      try {
        let found = await api('/v1/queries', 'POST', body)
        setAsked(found)
        while (!['done', 'failed', 'withdrawn'].includes(found.status)) {
          found = await api(`/v1/queries/${found.id}`, 'GET', undefined, { Prefer: 'wait=2' })
          setAsked(found)
        }
      } catch (error: any) {
        setAsked({ status: 'refused', error: error.message, steps: [], problems: error.body?.problems })
      }
    })
  const form = useRef(contract)
  form.current = contract
  const go = useRef(run)
  go.current = run
  useEffect(() => {
    let view: { destroy: () => void } | null = null
    let still = true
    void import('../editor').then(({ editor }) => {
      if (!still || !box.current) return
      box.current.textContent = ''
      view = editor(box.current, text.current, Object.fromEntries((known?.tables ?? []).map((one) => [one.name, one.columns])), dark, setSql, () => void go.current())
    })
    return () => {
      still = false
      view?.destroy()
    }
  }, [known, dark])
  const health = useLoad(() => api('/v1/health'), [Math.floor(tick.value / 5), asked?.status])
  const profiles = health.data?.queries.profiles ?? {}
  return (
    <>
      <Panel title={<h1>Ask</h1>}>
        <div ref={box}><p class="dim">loading the SQL box …</p></div>
        <form class="row" onSubmit={(event) => { event.preventDefault(); void run() }}>
          <label class="inline">within <input value={contract.within} placeholder="2s" size={5} onInput={(event) => set({ ...contract, within: event.currentTarget.value })} /></label>
          <label class="inline">fresh <input value={contract.fresh} placeholder="as it is" size={7} onInput={(event) => set({ ...contract, fresh: event.currentTarget.value })} /></label>
          <label class="inline">lag <input value={contract.lag} placeholder="any" size={4} inputMode="numeric" onInput={(event) => set({ ...contract, lag: event.currentTarget.value })} /></label>
          <label class="inline">stale answers <select value={contract.stale} onChange={(event) => set({ ...contract, stale: event.currentTarget.value })}><option value="mark">with a mark</option><option value="withhold">withheld</option></select></label>
          {!session.value?.profile && (
            <label class="inline">as <select value={contract.profile} onChange={(event) => set({ ...contract, profile: event.currentTarget.value })}><option value="">default</option>{session.value?.profiles.filter((one) => one !== 'default').map((one) => <option>{one}</option>)}</select></label>
          )}
          <button class="primary" disabled={busy || !sql.trim()}>Run</button>
          {busy && asked.id && <button type="button" onClick={() => act(async () => setAsked(await api(`/v1/queries/${asked.id}`, 'DELETE')))}>Cancel</button>}
        </form>
        <p class="dim">A deadline, and how fresh it must be: within 2s, nothing older than 30s, or at most so many arrived files missing. Without, what is there is read.</p>
      </Panel>
      {asked && <Answer asked={asked} busy={busy} />}
      <Panel title="What the front door did, by profile">
        <Told of={health}>
          <p class="dim">
            since the server started: {plural(health.data?.queries.failed ?? 0, 'query', 'queries')} failed, {health.data?.queries.withdrawn ?? 0} withdrawn; now {health.data?.queries.now.waiting ?? 0} wait, {health.data?.queries.now.queued ?? 0} in the queue, {health.data?.queries.now.running ?? 0} run
          </p>
          <Grid
            label="Queries by profile and outcome"
            rows={Object.entries<any>(profiles)}
            keyOf={([name]) => name}
            empty="no query has ended yet"
            columns={[
              { name: 'profile', of: ([name]) => name },
              { name: 'success', of: ([, one]) => one.success, right: true },
              { name: 'rejected', of: ([, one]) => one.rejected, right: true },
              { name: 'deadline missed', of: ([, one]) => one.missed, right: true },
              { name: 'stale', of: ([, one]) => one.stale, right: true },
              { name: 'satisfaction', of: ([, one]) => one.usm.toFixed(2), right: true },
            ]}
          />
        </Told>
      </Panel>
    </>
  )
}
function Answer({ asked, busy }: { asked: any; busy: boolean }) {
  const answer = asked.answer
  const [chart, setChart] = useState<{ x: string; y: string } | null>(null)
  const names: string[] = answer?.columns?.map((one: any) => one.name) ?? []
  const numeric = names.filter((_, i) => answer.rows?.length && answer.rows.every((row: any[]) => row[i] === null || (row[i] !== '' && !isNaN(Number(row[i])))))
  const lines = useMemo<Line[] | null>(() => {
    if (!chart || !answer?.rows) return null
    const [xi, yi] = [names.indexOf(chart.x), names.indexOf(chart.y)]
    const time = typeof answer.rows[0]?.[xi] === 'string' && !isNaN(Date.parse(answer.rows[0][xi])) && isNaN(Number(answer.rows[0][xi]))
    const points = answer.rows.map((row: any[], i: number) => [time ? Date.parse(row[xi]) / 1000 : numeric.includes(chart.x) ? Number(row[xi]) : i, row[yi] === null ? null : Number(row[yi])]).sort((a: any, b: any) => a[0] - b[0])
    const distinct = new Set(points.map((p: any) => p[0])).size === points.length
    return [{ label: chart.y, xs: points.map((p: any, i: number) => (distinct ? p[0] : i)), ys: points.map((p: any) => p[1]), bars: points.length < 80 }]
  }, [chart, answer])
  const timeX = !!chart && typeof answer?.rows?.[0]?.[names.indexOf(chart.x)] === 'string' && !isNaN(Date.parse(answer.rows[0][names.indexOf(chart.x)]))
  return (
    <Panel title="Answer" more={asked.id && <code class="dim">{asked.id.slice(0, 8)}</code>}>
      <p role="status">
        {busy ? <>… {asked.steps.at(-1)?.what ?? asked.status}</> : answer ? (
          <><span class={`outcome ${answer.outcome}`}>{answer.outcome}</span> in {duration(asked.ended_us - asked.arrived_us)}; {answer.way}: {answer.because}{answer.why && `; ${answer.why}`}</>
        ) : <span class="outcome failed">{asked.status}</span>}
      </p>
      {asked.error && <p class="problem">{asked.error}</p>}
      {answer?.acceptable_within_us && <p>It would be accepted within {duration(answer.acceptable_within_us)}.</p>}
      {answer?.complete_us && <p class="dim">complete up to {instant(Math.floor(answer.complete_us / 1e6) * 1e6)}; {answer.lag ?? 0} arrived files are not in it; versions {answer.versions.map((one: any) => `${one.table} ${one.snapshot}`).join(', ')}</p>}
      {answer?.rows && (
        <>
          <p class="row">
            <span>{count(answer.row_count)} rows{answer.truncated && ', cut off'}</span>
            {numeric.length > 0 && answer.rows.length > 1 && (
              <>
                <label class="inline">chart <select value={chart?.y ?? ''} onChange={(event) => setChart(event.currentTarget.value ? { x: chart?.x ?? names[0], y: event.currentTarget.value } : null)}><option value="">none</option>{numeric.map((one) => <option>{one}</option>)}</select></label>
                {chart && <label class="inline">by <select value={chart.x} onChange={(event) => setChart({ ...chart, x: event.currentTarget.value })}>{names.map((one) => <option>{one}</option>)}</select></label>}
              </>
            )}
          </p>
          {lines && <Curves lines={lines} unit="number" numberX={!timeX} height={220} label={`${chart!.y} by ${chart!.x}`} />}
          <div class="scroll" style="max-height:30rem" tabIndex={0} role="region" aria-label="Rows of the answer">
            <table>
              <thead><tr>{answer.columns.map((one: any) => <th scope="col" title={one.type}>{one.name}</th>)}</tr></thead>
              <tbody>{answer.rows.slice(0, 1000).map((row: any[]) => <tr>{row.map((value, i) => <td class={numeric.includes(names[i]) ? 'right num' : ''}>{value === null ? <span class="dim">null</span> : typeof value === 'object' ? JSON.stringify(value) : String(value)}</td>)}</tr>)}</tbody>
            </table>
          </div>
        </>
      )}
      {asked.steps.length > 0 && (
        <details>
          <summary>Steps</summary>
          <ul class="facts">{asked.steps.map((one: any) => <li>{one.status}: {one.what} <span class="dim">after {age(one.at_us - asked.arrived_us)}</span></li>)}</ul>
        </details>
      )}
    </Panel>
  )
}
