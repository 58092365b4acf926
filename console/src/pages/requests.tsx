// What people asked to be made again: what was merged, what is left, when it will be done.
import { useState } from 'preact/hooks'
import { BackfillDialog, NOT_ALLOWED, PlanView } from '../actions'
import { duration, instant, plural } from '../format'
import { api, graph, mayChange, nowUs, tick } from '../live'
import { act, Ago, At, Dialog, Grid, Panel, TableLink, Told, useLoad } from '../ui'

interface Status { request: number; table: string; stage: string; reason: string; downstream: boolean; asked_us: number; deadline_us: number | null; finished_us: number | null; ranges: [number, number][]; partitions: number; made: number; left: number; updates: number; merged_with: number[]; tables: string[]; waits: string | null; held: number; dropped: number }

const when = (ranges: [number, number][]) => (ranges.length ? `${instant(ranges[0][0])} to ${instant(ranges[ranges.length - 1][1])}${ranges.length > 1 ? `, ${ranges.length} pieces` : ''}` : 'nothing')

export function Requests() {
  const round = Math.floor(tick.value / 2)
  const found = useLoad<{ requests: Status[]; pending: { total_s: number; shortest_s: number } }>(() => api('/v1/requests'), [round])
  const plan = useLoad(() => api('/v1/plans', 'POST', { wishes: [] }), [])
  const [table, setTable] = useState('')
  const [asking, setAsking] = useState(false)
  const [cancelling, setCancelling] = useState<Status | null>(null)
  const rows = found.data?.requests ?? []
  const open = rows.filter((one) => one.finished_us === null)
  const pending = found.data?.pending
  return (
    <>
      <Panel
        title={<h1>Requests: {open.length} open</h1>}
        more={
          <form class="more" onSubmit={(event) => { event.preventDefault(); if (table) setAsking(true) }}>
            <label class="inline">
              table
              <select value={table} onChange={(event) => setTable(event.currentTarget.value)} required>
                <option value="">choose …</option>
                {graph.value?.tables.map((one) => <option>{one.name}</option>)}
              </select>
            </label>
            <button class="primary" disabled={!table}>Backfill …</button>
          </form>
        }
      >
        {pending && pending.total_s > 0 && (
          <p>
            What is pending takes about <b>{duration(pending.total_s * 1e6)}</b> of work, at the best <b>{duration(pending.shortest_s * 1e6)}</b>: done by <b>{instant(Math.round((nowUs() + pending.shortest_s * 1e6) / 1e6) * 1e6)}</b> or later, if nothing new comes.
          </p>
        )}
        <Told of={found}>
          <Grid
            label="Requests, the newest first"
            rows={rows}
            keyOf={(one) => String(one.request)}
            empty="nobody has asked for anything to be made again"
            columns={[
              { name: 'request', of: (one) => one.request, right: true },
              { name: 'table', of: (one) => <TableLink name={one.table} /> },
              { name: 'partitions', of: (one) => <span title={when(one.ranges)}>{one.partitions}</span>, right: true },
              { name: 'of', of: (one) => when(one.ranges), phone: false },
              { name: 'stage', of: (one) => one.stage },
              { name: 'progress', of: (one) => <><progress max={Math.max(1, one.made + one.left)} value={one.finished_us !== null ? Math.max(1, one.made + one.left) : one.made} aria-label={`request ${one.request}: ${one.made} made, ${one.left} left`} style="width:6rem" /> <span class="num">{one.made} made, {one.left} left</span></> },
              { name: 'reason', of: (one) => one.reason || '-', wrap: true },
              { name: 'merged with', of: (one) => one.merged_with.join(', ') || '-' },
              { name: 'asked', of: (one) => <Ago us={one.asked_us} /> },
              { name: 'until', of: (one) => <At us={one.deadline_us} />, phone: false },
              { name: 'now', of: (one) => (one.finished_us !== null ? <>{one.stage} <Ago us={one.finished_us} /></> : one.waits ? `waits: ${one.waits}` : one.tables.join(', ')), wrap: true },
              { name: '', of: (one) => one.finished_us === null && <button class="danger" disabled={!mayChange.value} title={mayChange.value ? '' : NOT_ALLOWED} onClick={() => setCancelling(one)}>Cancel</button> },
            ]}
          />
        </Told>
      </Panel>
      <Panel title="What will run anyway" more={<button onClick={plan.again}>Look again</button>}>
        <Told of={plan}>{plan.data && <PlanView plan={plan.data} />}</Told>
      </Panel>
      {asking && <BackfillDialog table={table} close={() => setAsking(false)} done={found.again} />}
      {cancelling && (
        <Dialog title={`Cancel request ${cancelling.request}`} close={() => setCancelling(null)}>
          <p>{plural(cancelling.made, 'partition')} of it are made and stay. What has not run yet ({cancelling.left} left) is dropped, unless something else needs it.</p>
          <p class="row">
            <button class="danger" onClick={() => act(async () => {
              await api(`/v1/requests/${cancelling.request}`, 'DELETE')
              setCancelling(null)
              found.again()
              return `request ${cancelling.request} is cancelled`
            })}>Cancel the request</button>
            <button onClick={() => setCancelling(null)}>Keep it</button>
          </p>
        </Dialog>
      )}
    </>
  )
}
