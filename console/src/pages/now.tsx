// Now: is it fine, what needs attention and why, the graph, what runs and waits, what comes in.
import { useState } from 'preact/hooks'
import { age, bytes, GLYPH, plural, type Level } from '../format'
import { GraphView } from '../graph'
import { graph, levels, nowUs, picture, tick, type Row } from '../live'
import { Ago, Badge, Grid, Panel, TableLink } from '../ui'

interface Seen { name: string; level: Level; stale: number | null; row: Row }

function seen(): Seen[] {
  return [...levels.value].map(([name, found]) => ({ name, ...found }))
}
const pressure = (one: Seen) =>
  one.row.doing === 'failed' ? 1e12 : one.row.target_us === null || one.stale === null ? -1 : one.stale / Math.max(1, one.row.target_us)
const needsAttention = (one: Seen) => one.level === 'late' || one.level === 'over' || one.level === 'near' || one.row.doing === 'failed'
export function doing(row: Row): string {
  if (row.running_us !== null) return row.doing === 'ordered' ? 'ordered' : 'runs'
  if (row.doing === 'pending') return 'waits'
  return row.doing
}
export function why(one: Seen): string {
  const { row } = one
  const parts: string[] = []
  if (one.stale !== null && row.target_us !== null) parts.push(`${age(one.stale)} old, ${age(row.target_us)} allowed`)
  else if (one.stale === null) parts.push('not made yet')
  if (row.error) parts.push(row.doing === 'failed' ? `failed: ${row.error.split('\n')[0]}` : `will be tried again: ${row.error.split('\n')[0]}`)
  else if (row.running_us !== null) parts.push(`runs for ${age(nowUs() - row.running_us)}`)
  else if (row.waits ?? row.why) parts.push((row.waits ?? row.why)!)
  return parts.join('; ')
}
function Fine({ all }: { all: Seen[] }) {
  const known = picture.value!
  const targets = all.filter((one) => one.row.target_us !== null && one.stale !== null)
  const n = (level: Level) => targets.filter((one) => one.level === level).length
  const late = n('late') + n('over')
  const failed = all.filter((one) => one.row.doing === 'failed').length
  const runs = all.filter((one) => one.row.running_us !== null).length
  const waits = all.filter((one) => one.row.doing === 'pending').length
  const unwell = Object.values(known.feeds).filter((feed) => feed.health === 'out' || feed.health === 'late').length
  const within = targets.length - late
  return (
    <div class={`fine ${late || failed ? 'notfine' : ''}`} role="status" aria-label="Is it fine?">
      {targets.length ? (
        <strong class="big">{within} <small>of {targets.length} within target</small></strong>
      ) : (
        <strong class="big">{all.length} <small>tables, none with a target</small></strong>
      )}
      {n('near') > 0 && <span><span class="badge near" aria-hidden="true">{GLYPH.near}</span> <b>{n('near')}</b> near</span>}
      {late > 0 && <span><span class="badge late" aria-hidden="true">{GLYPH.late}</span> <b>{late}</b> late</span>}
      {failed > 0 && <span><span class="badge over" aria-hidden="true">{GLYPH.over}</span> <b>{failed}</b> failed</span>}
      {unwell > 0 && <span><b>{unwell}</b> {unwell === 1 ? 'feed is' : 'feeds are'} not well</span>}
      <span><i class="dot" /> <b>{runs}</b> run</span>
      <span><i class="dot ring" /> <b>{waits}</b> wait</span>
      <span class="dim nophone">{known.busy.length} of {plural(known.tracks, 'track')} busy</span>
    </div>
  )
}
export function Now() {
  tick.value
  const [search, setSearch] = useState('')
  const [view, setView] = useState<'graph' | 'table'>('graph')
  const known = picture.value
  if (!known) return <p class="dim">waiting for the first picture …</p>
  const all = seen()
  const attention = all.filter(needsAttention).sort((a, b) => pressure(b) - pressure(a))
  const running = all.filter((one) => one.row.running_us !== null)
  const waiting = all.filter((one) => one.row.doing === 'pending' || one.row.doing === 'retrying')
  const wanted = search.trim().toLowerCase()
  const matching = wanted ? all.filter((one) => one.name.toLowerCase().includes(wanted)) : all
  const jobs = new Map(known.busy.map((one) => [one.table, one]))
  return (
    <div class="now">
      <h1 class="hidden">Now</h1>
      <Fine all={all} />
      <Panel
        title="Tables"
        id="tables"
        more={
          <span class="more">
            <input type="search" placeholder="Find a table  /" aria-label="Find a table" value={search} onInput={(event) => setSearch(event.currentTarget.value)} />
            <span class="switch" role="group" aria-label="Show as">
              <button aria-pressed={view === 'graph'} onClick={() => setView('graph')}>Graph</button>
              <button aria-pressed={view === 'table'} onClick={() => setView('table')}>List</button>
            </span>
          </span>
        }
      >
        {view === 'graph' && graph.value ? (
          <GraphView search={search} />
        ) : (
          <Grid
            label="All tables"
            rows={matching}
            keyOf={(one) => one.name}
            columns={[
              { name: 'table', of: (one) => <><Badge level={one.level} /> <TableLink name={one.name} /></>, sort: (one) => one.name },
              { name: 'staleness', of: (one) => age(one.stale), sort: (one) => one.stale ?? -1, right: true },
              { name: 'target', of: (one) => age(one.row.target_us), sort: (one) => one.row.target_us ?? -1, right: true },
              { name: 'of target', of: (one) => (pressure(one) < 0 || pressure(one) > 1e11 ? '-' : `${Math.round(pressure(one) * 100)} %`), sort: pressure, right: true },
              { name: 'now', of: (one) => doing(one.row), sort: (one) => doing(one.row) },
              { name: 'why', of: (one) => one.row.waits ?? one.row.why ?? '', wrap: true, phone: false },
              { name: 'updates', of: (one) => one.row.updates, sort: (one) => one.row.updates, right: true, phone: false },
              { name: 'rows', of: (one) => one.row.rows.toLocaleString('en-US'), sort: (one) => one.row.rows, right: true, phone: false },
            ]}
          />
        )}
      </Panel>
      <Panel title={<>Needs attention: {attention.length}</>} id="attention">
        {attention.length === 0 && <p class="good">Every table with a target is within it.</p>}
        <ol class="attention">
          {attention.slice(0, 60).map((one) => (
            <li key={one.name}>
              <Badge level={one.row.doing === 'failed' && one.level === 'none' ? 'over' : one.level} />
              <div>
                <TableLink name={one.name} />
                <p>{why(one)}</p>
              </div>
              <span class="num big">{one.stale === null ? '' : age(one.stale)}</span>
            </li>
          ))}
          {attention.length > 60 && <li class="dim">and {attention.length - 60} more: the list of all tables has them</li>}
        </ol>
        {known.violated.map((one) => <p class="problem">{one.said}</p>)}
        {Object.entries(known.feeds).filter(([, feed]) => feed.health === 'out' || feed.health === 'late' || feed.health === 'paused').map(([name, feed]) => (
          <p class="warn">
            Feed <a href="#/health">{name}</a> is {feed.health}{feed.since_us !== null && <> for {age(Math.max(0, nowUs() - feed.since_us))}</>}{feed.reason && `: ${feed.reason}`}
          </p>
        ))}
      </Panel>
      <Panel title={<>Runs: {running.length} <small class="dim">of {plural(known.tracks, 'track')}</small></>} id="running">
        {running.length === 0 && <p class="dim">nothing runs</p>}
        <ul class="running">
          {running.slice(0, 40).map((one) => {
            const job = jobs.get(one.name)
            const spent = Math.max(0, nowUs() - one.row.running_us!)
            const expected = (job?.expected_s || one.row.expected_s) * 1e6
            return (
              <li key={one.name}>
                <TableLink name={one.name} />
                <progress max={Math.max(expected, 1)} value={Math.min(spent, expected)} aria-label={`${one.name}: ${age(spent)} of about ${age(expected)}`} />
                <span class="num">{age(spent)} <span class="dim">of ~{age(expected)}</span></span>
                {job && <p class="dim">{job.why}</p>}
              </li>
            )
          })}
        </ul>
      </Panel>
      <Panel title={<>Waits: {waiting.length}</>} id="waiting">
        {waiting.length === 0 && <p class="dim">nothing waits</p>}
        <ul class="waiting">
          {waiting.slice(0, 40).map((one) => (
            <li key={one.name}>
              <TableLink name={one.name} />
              <span class="dim">
                {one.row.waits ?? doing(one.row)}
                {one.row.pending_files > 0 && ` · ${plural(one.row.pending_files, 'file')}`}
                {one.row.pending_partitions > 0 && ` · ${plural(one.row.pending_partitions, 'partition')}`}
              </span>
            </li>
          ))}
          {waiting.length > 40 && <li class="dim">and {waiting.length - 40} more</li>}
        </ul>
      </Panel>
      <Panel title="Files coming in" id="arrivals">
        <Grid
          label="Files, the newest first"
          rows={known.arrivals}
          keyOf={(one) => String(one.number)}
          empty="no file has come yet"
          first={12}
          columns={[
            { name: 'file', of: (one) => <span title={one.file}>{one.file.split('/').pop()}{one.kind === 'file-quarantined' && <b class="bad"> set aside</b>}{one.kind === 'file-rewritten' && <b> again</b>}</span> },
            { name: 'feed', of: (one) => one.feed },
            { name: 'size', of: (one) => bytes(one.bytes), right: true },
            { name: 'came', of: (one) => <Ago us={one.at_us} />, right: true },
          ]}
        />
      </Panel>
    </div>
  )
}
