// What an operator does, each with what it would come to before it is confirmed.
import { useState } from 'preact/hooks'
import { bytes, duration, plural } from './format'
import { api, mayChange, picture } from './live'
import { act, Dialog, Grid, say, TableLink } from './ui'

interface Plan { summary: string; updates: number; separately: number; total_s: number; shortest_s: number; reads_bytes: number; files_to_load: number; work: { table: string; partitions: number; updates?: number; seconds?: number; why: string[] | string }[] }

export const NOT_ALLOWED = 'this token may only look: its profile has no role = "operator"'

export function PlanView({ plan }: { plan: Plan }) {
  return (
    <div>
      <p>{plan.summary}</p>
      <p class="dim">
        {plural(plan.updates, 'update')}, about {duration(plan.total_s * 1e6)} of work, at the best {duration(plan.shortest_s * 1e6)}; reads {bytes(plan.reads_bytes)}
        {plan.separately > plan.updates && `; asked for one by one it would be ${plural(plan.separately, 'update')}`}
      </p>
      <Grid
        label="What would run"
        rows={plan.work}
        keyOf={(one) => one.table}
        first={12}
        empty="nothing would run"
        columns={[
          { name: 'table', of: (one) => <TableLink name={one.table} /> },
          { name: 'partitions', of: (one) => one.partitions, right: true },
          { name: 'because', of: (one) => (Array.isArray(one.why) ? one.why.join(', ') : one.why), wrap: true },
        ]}
      />
    </div>
  )
}
export function BackfillDialog({ table, span, close, done }: { table: string; span?: string; close: () => void; done?: () => void }) {
  const [asked, set] = useState({ span: span ?? '', reason: '', deadline: '', downstream: true })
  const [plan, setPlan] = useState<Plan | null>(null)
  const wish = () => ({ table, downstream: asked.downstream, ...(asked.span.trim() ? { span: asked.span.trim() } : {}) })
  return (
    <Dialog title={`Backfill ${table}`} close={close}>
      <form
        onSubmit={(event) => {
          event.preventDefault()
          void act(async () => {
            if (!plan) return setPlan(await api('/v1/plans', 'POST', { wishes: [wish()] }))
            const found = await api('/v1/requests', 'POST', { ...wish(), reason: asked.reason, ...(asked.deadline.trim() ? { deadline: asked.deadline.trim() } : {}) })
            done?.()
            close()
            return `request ${found.request} was taken` + (found.running ? '' : '; nobody runs the project now, so it waits until somebody does')
          })
        }}
      >
        <label>
          Partitions <input name="span" value={asked.span} placeholder="2024-03-01..2024-03-07, 2024-03, or all" onInput={(event) => (set({ ...asked, span: event.currentTarget.value }), setPlan(null))} size={34} autofocus />
        </label>
        <div class="row">
          <label>Reason <input name="reason" value={asked.reason} maxLength={200} onInput={(event) => set({ ...asked, reason: event.currentTarget.value })} /></label>
          <label>Until <input name="deadline" value={asked.deadline} placeholder="2h, or 2024-03-08T06:00" onInput={(event) => set({ ...asked, deadline: event.currentTarget.value })} /></label>
          <label class="inline"><input type="checkbox" checked={asked.downstream} onChange={(event) => (set({ ...asked, downstream: event.currentTarget.checked }), setPlan(null))} /> and what is made from it</label>
        </div>
        {plan && <PlanView plan={plan} />}
        <p class="row">
          <button class={plan ? 'primary' : ''} disabled={plan !== null && !mayChange.value} title={mayChange.value ? '' : NOT_ALLOWED}>{plan ? 'Have it made again' : 'Show the plan'}</button>
          <button type="button" onClick={close}>Not now</button>
          {plan && !mayChange.value && <span class="problem">{NOT_ALLOWED}</span>}
        </p>
      </form>
    </Dialog>
  )
}
export function RefreshDialog({ table, close }: { table: string; close: () => void }) {
  const [plan, setPlan] = useState<Plan | null>(null)
  const [busy, setBusy] = useState('')
  if (!plan && !busy) {
    setBusy('planning')
    void act(async () => {
      setPlan(await api('/v1/plans', 'POST', { wishes: [] }))
      setBusy('')
    })
  }
  const mine = plan && { ...plan, work: plan.work.filter((one) => one.table === table) }
  return (
    <Dialog title={`Refresh ${table}`} close={close}>
      <p>What is pending of {table}, and of what it is made from, goes before all other updates; nothing that had arrived may be missing afterwards.</p>
      {mine && (mine.work.length ? <p>Pending now: {plural(mine.work[0].partitions, 'partition')} of {table}.</p> : <p>Nothing of {table} itself is pending now; what it is made from may be.</p>)}
      <p class="row">
        <button
          class="primary"
          disabled={busy !== ''}
          onClick={() =>
            act(async () => {
              if (!picture.value?.running) throw new Error('nobody runs the project now: type penstock serve or penstock run')
              setBusy('asked')
              close()
              say(`${table} is being refreshed …`)
              const asked = await api('/v1/queries', 'POST', { sql: `select 1 as there from ${quoted(table)} limit 1`, lag: 0, within: '10m' })
              let found = asked
              while (!['done', 'failed', 'withdrawn'].includes(found.status)) found = await api(`/v1/queries/${asked.id}`, 'GET', undefined, { Prefer: 'wait=20' })
              if (found.error) throw new Error(found.error)
              return found.answer.outcome === 'success' ? `${table} is fresh` : `${table}: ${found.answer.outcome}${found.answer.why ? `, ${found.answer.why}` : ''}`
            })
          }
        >
          Refresh
        </button>
        <button onClick={close}>Not now</button>
      </p>
    </Dialog>
  )
}
export const quoted = (name: string) => '`' + name.replaceAll('`', '``') + '`'

export function RetryButton({ names, label = 'Retry', done }: { names: string[]; label?: string; done?: () => void }) {
  return (
    <button
      disabled={!mayChange.value}
      title={mayChange.value ? '' : NOT_ALLOWED}
      onClick={() =>
        act(async () => {
          const found = await api('/v1/retries', 'POST', { names })
          done?.()
          const refused = found.refused.map(([name, why]: [string, string]) => `${name}: ${why}`)
          if (!found.taken.length) throw new Error(refused.join('; ') || 'nothing of it has failed, so there is nothing to try again')
          return `tried again: ${found.taken.join(', ')}${refused.length ? `; not: ${refused.join('; ')}` : ''}${found.running ? '' : '; nobody runs the project now'}`
        })
      }
    >
      {label}
    </button>
  )
}
export function PauseButton({ feed, paused, done }: { feed: string; paused: boolean; done?: () => void }) {
  const [asking, set] = useState(false)
  const [reason, setReason] = useState('')
  const change = (method: string, body?: unknown) =>
    act(async () => {
      const found = await api(`/v1/feeds/${encodeURIComponent(feed)}/pause`, method, body)
      set(false)
      done?.()
      return found.paused ? `feed ${feed} is paused: files are noticed, but not loaded` : `feed ${feed} is loaded again`
    })
  return (
    <>
      <button disabled={!mayChange.value} title={mayChange.value ? '' : NOT_ALLOWED} onClick={() => (paused ? change('DELETE') : set(true))}>
        {paused ? 'Resume' : 'Pause'} {feed}
      </button>
      {asking && (
        <Dialog title={`Pause the feed ${feed}`} close={() => set(false)}>
          <p>Its files are noticed, but none is loaded until it is resumed. These tables stand still, and all that is made from them: {picture.value?.feeds[feed]?.tables.join(', ')}.</p>
          <form onSubmit={(event) => { event.preventDefault(); void change('POST', { reason }) }}>
            <label>Reason <input name="reason" value={reason} maxLength={200} onInput={(event) => setReason(event.currentTarget.value)} autofocus /></label>
            <button class="primary">Pause</button> <button type="button" onClick={() => set(false)}>Not now</button>
          </form>
        </Dialog>
      )}
    </>
  )
}
