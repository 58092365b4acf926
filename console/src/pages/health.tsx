// Feeds and their rhythm, what was set aside, what failed, the disk, the log, and who did what.
import { useState } from 'preact/hooks'
import { PauseButton, RetryButton } from '../actions'
import { age, bytes, duration, instant } from '../format'
import { api, nowUs, picture, tick } from '../live'
import { Ago, At, Grid, Panel, TableLink, Told, useLoad } from '../ui'

const PEOPLE = 'backfill-requested,request-cancelled,feed-paused,feed-resumed,table-retried,file-withdrawn'
const KINDS: [string, string][] = [
  ['', 'everything'], [PEOPLE, 'what people did'], ['update-failed', 'failures'], ['update-started,update-finished', 'updates'], ['file-arrived,file-rewritten,file-quarantined,file-withdrawn', 'files'],
  ['feed-went-out,feed-came-back,fault-met,fault-ended,guarantee-voided,guarantee-renewed', 'outages, faults, guarantees'], ['warehouse-declared,run-started,run-stopped', 'starts and settings'],
]
function describe(event: any): string {
  const job = typeof event.job === 'object' ? event.job?.id : event.job
  const parts = [event.table ?? event.job?.table ?? event.feed ?? event.part ?? event.owner ?? event.query, job, event.file?.uri ?? event.uri, event.why && `because it ${event.why}`, event.how, event.error, event.reason, event.because, event.tables && Array.isArray(event.tables) && typeof event.tables[0] === 'string' ? event.tables.join(', ') : event.tables && `${event.tables.length} tables`, event.seconds !== undefined && `${duration(event.seconds * 1e6)}`]
  return parts.filter(Boolean).join(' · ')
}
export function Health() {
  const second = tick.value
  const known = picture.value
  const health = useLoad(() => api('/v1/health'), [Math.floor(second / 5)])
  const failed = Object.entries(known?.tables ?? {}).filter(([, row]) => row.doing === 'failed' || row.doing === 'retrying')
  const refused = Object.entries(known?.tables ?? {}).filter(([, row]) => row.refused > 0)
  const disk = health.data?.disk
  return (
    <>
      <h1>Health</h1>
      <Panel title="Feeds">
        <Told of={health}>
          <Grid
            label="Feeds"
            rows={health.data?.feeds ?? []}
            keyOf={(one: any) => one.feed}
            empty="no feed has been taken up yet"
            columns={[
              { name: 'feed', of: (one: any) => one.feed, sort: (one: any) => one.feed },
              { name: 'health', of: (one: any) => <b class={['late', 'out'].includes(one.health) ? 'bad' : ''}>{{ healthy: '✓', late: '!', out: '✕', paused: '‖' }[one.health as string] ?? '·'} {one.health}</b>, sort: (one: any) => one.health },
              { name: 'said', of: (one: any) => <>{one.said}{one.reason && ` (${one.reason})`}</>, wrap: true, phone: false },
              { name: 'last file', of: (one: any) => <Ago us={one.last_us} />, sort: (one: any) => one.last_us ?? 0 },
              { name: 'next', of: (one: any) => (one.next_us === null ? '-' : one.next_us > nowUs() ? `in ${age(one.next_us - nowUs())}` : 'now'), phone: false },
              { name: 'every', of: (one: any) => duration(one.period_us), right: true },
              { name: 'learned', of: (one: any) => duration(one.learned_period_us), right: true, phone: false },
              { name: 'give or take', of: (one: any) => duration(one.jitter_us), right: true, phone: false },
              { name: 'waiting', of: (one: any) => one.waiting_files, right: true },
              { name: 'tables', of: (one: any) => one.tables.map((name: string, i: number) => <>{i > 0 && ', '}<TableLink name={name} /></>), wrap: true, phone: false },
              { name: '', of: (one: any) => <PauseButton feed={one.feed} paused={one.health === 'paused'} done={health.again} /> },
            ]}
          />
        </Told>
      </Panel>
      <div class="cols" style="margin-top:.8rem">
        <Panel title={<>Failures: {failed.length}</>} more={failed.length > 0 && <RetryButton names={failed.map(([name]) => name)} label="Retry all" />}>
          <Grid
            label="Tables that failed"
            rows={failed}
            keyOf={([name]) => name}
            empty="no table fails"
            columns={[
              { name: 'table', of: ([name]) => <TableLink name={name} /> },
              { name: 'now', of: ([, row]) => row.doing },
              { name: 'error', of: ([, row]) => row.error, wrap: true },
              { name: '', of: ([name]) => <RetryButton names={[name]} /> },
            ]}
          />
        </Panel>
        <Panel title={<>Files set aside: {known?.quarantine.length ?? 0}</>} more={(known?.quarantine.length ?? 0) > 0 && <RetryButton names={known!.quarantine.map((one) => one.file)} label="Look at all again" />}>
          <Grid
            label="Files that were set aside"
            rows={known?.quarantine ?? []}
            keyOf={(one) => one.file}
            first={20}
            empty="no file is set aside"
            columns={[
              { name: 'file', of: (one) => one.file, wrap: true },
              { name: 'reason', of: (one) => one.reason, wrap: true },
              { name: '', of: (one) => <RetryButton names={[one.file]} label="Look again" /> },
            ]}
          />
          {refused.length > 0 && (
            <>
              <h3>Rows set aside</h3>
              <Grid
                label="Tables with refused rows"
                rows={refused}
                keyOf={([name]) => name}
                columns={[
                  { name: 'table', of: ([name]) => <TableLink name={name} /> },
                  { name: 'rows', of: ([, row]) => row.refused, right: true },
                  { name: 'why', of: ([name]) => <>ask <code>select file, line, reason from {name}_quarantine</code></>, wrap: true },
                ]}
              />
            </>
          )}
        </Panel>
        <Panel title="Disk and rows that wait">
          {disk ? (
            <p>
              <progress max={disk.total} value={disk.used} aria-label={`${Math.round((100 * disk.used) / disk.total)} % of the disk is used`} style="width:12rem" /> {bytes(disk.used)} of {bytes(disk.total)} used, {bytes(disk.free)} free
            </p>
          ) : <p class="dim">the data are not on a disk of this machine</p>}
          <Grid
            label="Rows that wait for another source"
            rows={health.data?.waiting ?? []}
            keyOf={(one: any) => one.table + one.source}
            empty="no rows wait for another source"
            columns={[
              { name: 'table', of: (one: any) => <TableLink name={one.table} /> },
              { name: 'rows of', of: (one: any) => one.source },
              { name: 'rows', of: (one: any) => `${one.exact ? '' : 'about '}${one.rows}`, right: true },
              { name: 'wait for', of: (one: any) => (Array.isArray(one.waits_for) ? one.waits_for.join(', ') : one.waits_for) },
            ]}
          />
        </Panel>
        <Panel title="Recovering">
          <Grid
            label="Tables that catch up"
            rows={known?.recovery ?? []}
            keyOf={(one: any) => one.table}
            empty="nothing catches up after an outage"
            columns={[
              { name: 'table', of: (one: any) => <TableLink name={one.table} /> },
              { name: 'behind', of: (one: any) => duration(one.lag_us), right: true },
              { name: 'over', of: (one: any) => (one.until_us ? instant(Math.round(one.until_us / 1e6) * 1e6) : '-') },
            ]}
          />
        </Panel>
        <Log />
      </div>
    </>
  )
}
function Log() {
  const [kinds, set] = useState(PEOPLE)
  const [older, setOlder] = useState<number | null>(null)
  const found = useLoad(() => api(`/v1/log?limit=40&kinds=${kinds}${older ? `&before=${older}` : ''}`), [kinds, older, older ? 0 : Math.floor(tick.value / 3)])
  return (
    <Panel
      title="The log"
      wide
      more={<label class="inline">show <select value={kinds} onChange={(event) => { set(event.currentTarget.value); setOlder(null) }}>{KINDS.map(([value, label]) => <option value={value}>{label}</option>)}</select></label>}
    >
      <Told of={found}>
        <Grid
          label="Events, the newest first"
          rows={found.data?.events ?? []}
          keyOf={(one: any) => String(one.number)}
          empty="nothing of that kind lately"
          columns={[
            { name: 'number', of: (one: any) => one.number, right: true, phone: false },
            { name: 'when', of: (one: any) => <At us={one.at_us} /> },
            { name: 'what', of: (one: any) => one.kind.replaceAll('-', ' ') },
            { name: 'who', of: (one: any) => one.by || (PEOPLE.includes(one.kind) ? 'at the command line' : ''), wrap: true },
            { name: 'about', of: (one: any) => describe(one), wrap: true },
          ]}
        />
        <p class="row">
          {found.data?.next && <button onClick={() => setOlder(found.data.next)}>Older</button>}
          {older && <button onClick={() => setOlder(null)}>The newest</button>}
        </p>
      </Told>
    </Panel>
  )
}
