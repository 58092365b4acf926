// One table: how far it is complete, why, how it was, how it is made, and what can be done.
import { useMemo, useState } from 'preact/hooks'
import { BackfillDialog, PauseButton, RefreshDialog, RetryButton } from '../actions'
import { Curves, saw, type Line } from '../curve'
import { age, bytes, COLOURS, count, day, DAY, duration, GLYPH, HOUR, instant, LEVEL_NAME, levelOf, plural } from '../format'
import { api, nowUs, picture, staleness, tick } from '../live'
import { At, Badge, Grid, Panel, TableLink, Told, useDark, useLoad } from '../ui'
import { Sql } from '../sql'
import { doing } from './now'

const SPANS: [string, number][] = [['1h', HOUR], ['6h', 6 * HOUR], ['1d', DAY], ['7d', 7 * DAY], ['30d', 30 * DAY]]

export function TablePage({ name: given }: { name?: string }) {
  const name = given!
  tick.value
  const row = picture.value?.tables[name]
  const at = `/v1/tables/${encodeURIComponent(name)}`
  const updates = row?.updates ?? 0
  const info = useLoad(() => api(at), [name, updates])
  const [width, setWidth] = useState(6 * HOUR)
  const past = useLoad(() => api(`${at}/staleness?since_us=0`), [name, updates])
  const versions = useLoad(() => api(`${at}/versions?limit=12`), [name, updates])
  const parts = useLoad(() => api(`${at}/partitions`), [name, updates])
  const bounds = useLoad(() => api('/v1/bounds'), [])
  const [dialog, setDialog] = useState<{ kind: 'backfill' | 'refresh'; span?: string } | null>(null)
  const dark = useDark()
  const now = nowUs()
  const stale = row ? staleness(row, now) : null
  const target = row?.target_us ?? null
  const level = levelOf(stale, target)
  const guarantee = bounds.data?.guarantees.find((one: any) => one.table === name)
  const bound = guarantee?.bound?.staleness_us ?? null
  const lines = useMemo<Line[]>(() => {
    const moves = past.data?.moves ?? []
    const until = nowUs()
    const { xs, ys } = saw(moves, until - width, until)
    if (!xs.length) return []
    const found: Line[] = [{ label: 'staleness', xs, ys, fill: true, colour: COLOURS[dark ? 'dark' : 'light'].fresh }]
    const flat = (value: number) => ({ xs: [(until - width) / 1e6, until / 1e6], ys: [value / 1e6, value / 1e6] })
    if (target !== null) found.push({ label: 'target', ...flat(target), colour: COLOURS[dark ? 'dark' : 'light'].late, dash: [6, 4] })
    const highest = Math.max(...ys, (target ?? 0) / 1e6)
    if (bound !== null && bound / 1e6 < highest * 8) found.push({ label: 'proven bound', ...flat(bound), colour: dark ? '#e8eaed' : '#15181c', dash: [2, 4] })
    return found
  }, [past.data, width, target, bound, dark, Math.floor(now / (width / 300))])
  if (info.error) return <p class="problem">{info.error}. <a href="#/tables">All tables</a></p>
  const d = info.data
  return (
    <>
      <div class="row">
        <h1>{name}</h1>
        {row && <Badge level={level} />}
        <span class="dim">{d?.description}</span>
        <span style="flex:1" />
        <span class="row">
          <button onClick={() => setDialog({ kind: 'backfill' })}>Backfill …</button>
          <button onClick={() => setDialog({ kind: 'refresh' })}>Refresh …</button>
          <RetryButton names={[name]} />
          {d?.feed_name && <PauseButton feed={d.feed_name} paused={picture.value?.feeds[d.feed_name]?.health === 'paused'} />}
        </span>
      </div>
      {dialog?.kind === 'backfill' && <BackfillDialog table={name} span={dialog.span} close={() => setDialog(null)} done={versions.again} />}
      {dialog?.kind === 'refresh' && <RefreshDialog table={name} close={() => setDialog(null)} />}
      {row && (
        <dl class="stat">
          <Fact k={d?.complete_us === null && row.edge_us !== null ? 'as of' : 'complete up to'} v={instant(row.edge_us === null ? null : Math.floor(row.edge_us / 1e6) * 1e6)} />
          <Fact k="staleness" v={<span title={LEVEL_NAME[level]}>{GLYPH[level]} {age(stale)}</span>} />
          <Fact k="target" v={age(target)} />
          <Fact k="proven bound" v={bound === null ? (guarantee?.verdict ?? '-') : duration(bound)} />
          <Fact k="now" v={doing(row) + (row.running_us !== null ? ` for ${age(now - row.running_us)}` : '')} />
          <Fact k="an update takes" v={`~${duration(row.expected_s * 1e6)}`} />
          <Fact k="updates" v={`${count(row.updates)} (${count(row.merged)} merged)`} />
          <Fact k="rows" v={count(row.rows)} />
          {row.refused > 0 && <Fact k="refused rows" v={count(row.refused)} />}
        </dl>
      )}
      <div class="cols">
        <Panel title="Why it is as it is">
          <Told of={info}>
            <ul class="facts">{d?.lines.map((line: string) => <li>{line}</li>)}</ul>
            {guarantee?.breaks && <p class="warn">{guarantee.breaks}{guarantee.remedies.length > 0 && <> What would help: {guarantee.remedies.join('; ')}.</>}</p>}
          </Told>
        </Panel>
        <Panel
          title="Staleness over time"
          more={
            <span class="switch" role="group" aria-label="How far back">
              {SPANS.map(([label, value]) => <button aria-pressed={width === value} onClick={() => setWidth(value)}>{label}</button>)}
            </span>
          }
        >
          <Told of={past}>
            {lines.length ? <Curves lines={lines} since={now - width} until={now} height={220} label={`Staleness of ${name} in the last ${duration(width)}: now ${age(stale)}, target ${age(target)}`} /> : <p class="dim">nothing was published of it yet</p>}
          </Told>
        </Panel>
        <Panel title="Partitions" wide>
          <Told of={parts}>{parts.data && <Calendar data={parts.data} pick={(span) => setDialog({ kind: 'backfill', span })} />}</Told>
        </Panel>
        <Panel title="How it is made" more={d && <span class="dim">{d.declared_at}</span>}>
          <Told of={info}>
            {d && (
              <>
                <p>{d.how}</p>
                {d.sql ? <Sql text={d.sql} names={d.sources.map((one: any) => one.table)} /> : <p class="dim">{d.feed_name ? <>the rows of the feed <a href="#/health">{d.feed_name}</a>, as they come</> : d.flow ? `by the flow ${d.flow}` : 'in Python, or by others'}</p>}
                {d.rules.length > 0 && (
                  <>
                    <h3>Rules that rows must keep</h3>
                    <ul class="facts">{d.rules.map((rule: string) => <li><code>{rule}</code></li>)}</ul>
                  </>
                )}
                <h3>Settings</h3>
                <p class="chips">{Object.entries(d.settings).filter(([, v]) => typeof v !== 'object').map(([k, v]) => <span class="chip"><code>{k} = {typeof v === 'number' && v >= 1e5 ? duration(v) : JSON.stringify(v)}</code></span>)}{!Object.keys(d.settings).length && <span class="dim">all as by default</span>}</p>
              </>
            )}
          </Told>
        </Panel>
        <Panel title="Columns, and where they come from">
          <Told of={info}>{d && <Columns columns={d.columns} sources={d.sources} readers={d.readers} />}</Told>
        </Panel>
        <Panel title="Last updates: what they cost, and why each ran" wide>
          <Told of={past}>{past.data && <Updates bars={past.data.updates} name={name} />}</Told>
        </Panel>
        <Panel title="Versions">
          <Told of={versions}>
            <Grid
              label="Versions, the newest first"
              rows={versions.data?.versions ?? []}
              keyOf={(one: any) => String(one.version)}
              empty="nothing is published yet"
              columns={[
                { name: 'version', of: (one: any) => one.version, right: true },
                { name: 'published', of: (one: any) => <At us={one.at_us} /> },
                { name: 'complete up to', of: (one: any) => instant(one.complete_us === null ? null : Math.floor(one.complete_us / 1e6) * 1e6) },
                { name: 'made from', of: (one: any) => Object.entries(one.inputs).map(([table, version]) => `${table} ${version}`).join(', ') || one.files.map((file: string) => file.split('/').pop()).slice(0, 3).join(', '), wrap: true },
                { name: 'kept', of: (one: any) => (one.kept ? '✓' : 'gone') },
              ]}
            />
          </Told>
        </Panel>
        <Panel title="Some rows">
          <Rows name={name} at={at} versions={versions.data?.versions ?? []} />
        </Panel>
      </div>
    </>
  )
}
const Fact = ({ k, v }: { k: string; v: any }) => (
  <div>
    <dt>{k}</dt>
    <dd class="v" style="margin:0">{v}</dd>
  </div>
)
function Columns({ columns, sources, readers }: { columns: any[]; sources: any[]; readers: string[] }) {
  const link = ([table, column]: [string, string]) => <a class="chip" href={`#/table/${encodeURIComponent(table)}`}>{table}.{column}</a>
  return (
    <>
      <p class="dim">
        Made from {sources.length ? sources.map((one, i) => <>{i > 0 && ', '}<TableLink name={one.table} />{one.holds_back && ' (holds it back)'}</>) : 'its feed'}; read by{' '}
        {readers.length ? readers.map((one, i) => <>{i > 0 && ', '}<TableLink name={one} /></>) : 'no other table'}.
      </p>
      <Grid
        label="Columns with their lineage"
        rows={columns}
        keyOf={(one) => one.name}
        first={40}
        columns={[
          { name: 'column', of: (one) => <code>{one.name}</code> },
          { name: 'type', of: (one) => one.type ?? '?' },
          { name: 'comes from', of: (one) => <span class="chips">{one.from.map(link)}</span>, wrap: true },
          { name: 'goes to', of: (one) => <span class="chips">{one.to.slice(0, 12).map(link)}{one.to.length > 12 && <span class="dim">and {one.to.length - 12} more</span>}</span>, wrap: true },
        ]}
      />
    </>
  )
}
function Updates({ bars, name }: { bars: any; name: string }) {
  const rows = bars.job.map((job: string, i: number) => ({ job, start: bars.start_us[i], end: bars.end_us[i], failed: bars.failed[i], why: bars.why[i], how: bars.how[i], track: bars.track[i] })).reverse()
  return (
    <Grid
      label={`The last updates of ${name}`}
      rows={rows}
      first={8}
      keyOf={(one: any) => one.job + one.start}
      empty="no update ran yet"
      columns={[
        { name: 'began', of: (one: any) => <At us={one.start} /> },
        { name: 'took', of: (one: any) => (one.end === null ? 'runs' : duration(one.end - one.start)), right: true, sort: (one: any) => (one.end ?? nowUs()) - one.start },
        { name: 'track', of: (one: any) => one.track, right: true, phone: false },
        { name: 'how', of: (one: any) => (one.failed === 1 ? <b class="bad">✕ failed: {one.how}</b> : one.failed === 2 ? 'stopped for a newer request' : one.how), wrap: true },
        { name: 'because it', of: (one: any) => one.why, wrap: true },
        { name: 'job', of: (one: any) => <code>{one.job}</code>, phone: false },
      ]}
    />
  )
}
function Rows({ name, at, versions }: { name: string; at: string; versions: any[] }) {
  const [version, set] = useState('')
  const found = useLoad(() => api(`${at}/rows?limit=50${version ? `&at=${version}` : ''}`), [name, version, versions[0]?.version])
  return (
    <>
      <label class="inline">
        at version
        <select value={version} onChange={(event) => set(event.currentTarget.value)}>
          <option value="">newest</option>
          {versions.filter((one) => one.kept).map((one) => <option value={one.version}>{one.version} · {instant(one.at_us)}</option>)}
        </select>
      </label>{' '}
      <span class="dim">{found.data && `${count(found.data.rows.length)} of ${count(found.data.of)} rows, the newest partitions first`}</span>
      <Told of={found}>
        {found.data && (
          <div style="max-height:24rem" class="scroll" tabIndex={0} role="region" aria-label={`Rows of ${name}`}>
            <table>
              <thead><tr>{found.data.columns.map((one: any) => <th scope="col" title={one.type}>{one.name}</th>)}</tr></thead>
              <tbody>{found.data.rows.map((row: any[]) => <tr>{row.map((value) => <td class={typeof value === 'number' ? 'right num' : ''}>{value === null ? <span class="dim">null</span> : typeof value === 'object' ? JSON.stringify(value) : String(value)}</td>)}</tr>)}</tbody>
            </table>
          </div>
        )}
      </Told>
    </>
  )
}
/** Each partition a cell: days as weeks of a year, hours as a row of 24. Proportions, not red for one failure. */
function Calendar({ data, pick }: { data: any; pick: (span: string) => void }) {
  const dark = useDark()
  if (data.partition === null) return <p class="dim">It has no partitions: it is made as a whole. {data.made.length > 0 && `${plural(data.made.reduce((n: number, one: any) => n + one[2], 0), 'row')}, ${bytes(data.made.reduce((n: number, one: any) => n + one[3], 0))}.`}</p>
  const made: [number, number, number, number, number][] = data.made
  const inside = (list: [number, number][], start: number, end: number) => list.some(([a, b]) => a < end && b > start)
  const cells = new Map(made.map((one) => [one[0], one]))
  const step = made.length ? made[0][1] - made[0][0] : data.partition.startsWith('hour') ? HOUR : data.partition.startsWith('minute') ? 60e6 : DAY
  // What is to be made and is not there yet.
  if (step > 0) for (const [a, b] of data.stale) for (let t = Math.ceil(a / step) * step, n = 0; t < b && n < 500; t += step, n++) if (!cells.has(t) && t < nowUs() + step) cells.set(t, [t, t + step, 0, 0, 0])
  const all = [...cells.values()].sort((a, b) => a[0] - b[0])
  if (!all.length) return <p class="dim">no partition has been made yet</p>
  const most = Math.max(1, ...all.map((one) => one[2]))
  const daily = step >= DAY * 0.9
  const size = 13
  const shownAll = all.slice(daily ? -800 : -24 * 60)
  const first = Math.floor(shownAll[0][0] / DAY)
  const colours = COLOURS[dark ? 'dark' : 'light']
  const stateOf = (one: number[]) =>
    inside(data.running, one[0], one[1]) ? 'is being made' : inside(data.stale, one[0], one[1]) ? (data.failed ? 'failed' : one[4] ? 'stale: will be made again' : 'to be made') : inside(data.held, one[0], one[1]) ? 'does not follow all changes' : 'made'
  const fill = (state: string) => ({ 'is being made': dark ? '#e8eaed' : '#15181c', failed: colours.late, 'stale: will be made again': colours.near, 'to be made': 'none', 'does not follow all changes': dark ? '#8e7cc3' : '#b9a6e0', made: colours.fresh })[state] ?? colours.none
  const counts = new Map<string, number>()
  for (const one of all) counts.set(stateOf(one), (counts.get(stateOf(one)) ?? 0) + 1)
  const x = (us: number) => (daily ? Math.floor((Math.floor(us / DAY) - first + ((first + 3) % 7)) / 7) : Math.floor(us / HOUR) % 24)
  const y = (us: number) => (daily ? (Math.floor(us / DAY) + 3) % 7 : Math.floor(us / DAY) - first)
  const wide = (daily ? Math.max(...shownAll.map((one) => x(one[0]))) + 1 : 24) * size + 80
  const high = (daily ? 7 : y(shownAll[shownAll.length - 1][0]) + 1) * size + 18
  const title = (one: number[]) => `${instant(one[0])}: ${stateOf(one)}, ${plural(one[2], 'row')}, ${bytes(one[3])}${one[4] ? `, version ${one[4]}` : ''}`
  const spanOf = (one: number[]) => (daily ? day(one[0]) : instant(one[0], false).replace(' ', 'T').slice(0, 13))
  return (
    <>
      <p class="chips" aria-label="Partitions by state">
        {[...counts].map(([state, n]) => (
          <span class="chip"><svg width="11" height="11" aria-hidden="true"><rect width="11" height="11" rx="2" fill={fill(state)} stroke="var(--dim)" stroke-width={state === 'to be made' ? 2 : 0} /></svg> {count(n)} {state}</span>
        ))}
        <span class="dim">by {data.partition}; a darker cell has more rows; choose one to have it made again</span>
      </p>
      <div class="calendar" tabIndex={0} role="region" aria-label="Calendar of partitions">
        <svg width={wide} height={high} role="img" aria-label={[...counts].map(([state, n]) => `${n} ${state}`).join(', ')}>
          {daily ? ['Mon', '', 'Wed', '', 'Fri', '', 'Sun'].map((label, i) => <text x={0} y={18 + i * size + 10}>{label}</text>) : [0, 6, 12, 18, 23].map((h) => <text x={70 + h * size} y={10}>{h}</text>)}
          {shownAll.map((one, i) => {
            const state = stateOf(one)
            const newRow = !daily && (i === 0 || y(shownAll[i - 1][0]) !== y(one[0]))
            const newMonth = daily && (i === 0 || day(one[0]).slice(0, 7) !== day(shownAll[i - 1][0]).slice(0, 7))
            return (
              <>
                {newRow && <text x={0} y={18 + y(one[0]) * size + 10}>{day(one[0])}</text>}
                {newMonth && <text x={30 + x(one[0]) * size} y={10}>{day(one[0]).slice(2, 7)}</text>}
                <rect
                  x={(daily ? 30 : 70) + x(one[0]) * size} y={16 + y(one[0]) * size} width={size - 2} height={size - 2} rx="2" fill={fill(state)}
                  fill-opacity={state === 'made' ? 0.3 + (0.7 * one[2]) / most : 1} stroke="var(--dim)" stroke-width={state === 'to be made' ? 1.5 : 0}
                  onClick={() => pick(spanOf(one))}
                >
                  <title>{title(one)}</title>
                </rect>
              </>
            )
          })}
        </svg>
      </div>
      <details>
        <summary>The same as a list</summary>
        <Grid
          label="Partitions, the newest first"
          rows={[...all].reverse().slice(0, 200)}
          keyOf={(one) => String(one[0])}
          columns={[
            { name: 'from', of: (one) => instant(one[0]) },
            { name: 'state', of: stateOf },
            { name: 'rows', of: (one) => count(one[2]), right: true },
            { name: 'size', of: (one) => bytes(one[3]), right: true },
            { name: 'version', of: (one) => one[4] || '-', right: true },
            { name: '', of: (one) => <button class="plain" onClick={() => pick(spanOf(one))}>again …</button> },
          ]}
        />
      </details>
    </>
  )
}
