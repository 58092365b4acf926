// What the page knows of now, and what it asks the server for.
import { computed, signal } from '@preact/signals'
import { applyChange, follow, type Message } from './follow'
import { levelOf, setZone, type Level } from './format'

export interface Row {
  doing: string
  edge_us: number | null
  since_us: number | null
  known: boolean
  target_us: number | null
  pending_files: number
  pending_partitions: number
  held_partitions: number
  running_us: number | null
  expected_s: number
  waits: string | null
  why: string | null
  error: string | null
  updates: number
  merged: number
  folded: number
  failures: number
  rows: number
  refused: number
}
export interface FeedRow {
  feed: string
  health: string
  since_us: number | null
  last_us: number | null
  period_us: number | null
  jitter_us: number | null
  learned_period_us: number | null
  waiting_files: number
  tables: string[]
  reason: string
}
export interface Busy { track: number; table: string; job: string; started_us: number; expected_s: number; why: string }
export interface Picture {
  at_us: number
  speed: number
  running: boolean
  tables: Record<string, Row>
  feeds: Record<string, FeedRow>
  tracks: number
  policy: string
  busy: Busy[]
  faults: { part: string; since_us: number; reason: string }[]
  recovery: any[]
  violated: { table: string; said: string }[]
  void: Record<string, { since_us: number; because: string }>
  quarantine: { feed: string; file: string; reason: string }[]
  arrivals: { number: number; at_us: number; feed: string; file: string; bytes: number; kind: string }[]
  queries: Record<string, number>
}
export interface Session {
  project: string; zone: string; version: string; profile: string | null; operator: boolean; profiles: string[]; running: boolean; tracks: number; policy: string
}
export interface Node {
  name: string; kind: string; feed: string | null; flow: string | null; group: string | null; priority: number; target_us: number | null
  partition: string; description: string; columns: string[]; has_time: boolean; final: boolean
}
export interface Graph { tables: Node[]; feeds: { name: string; tables: string[] }[]; edges: [string, string][] }

export const session = signal<Session | null>(null)
export const denied = signal(false)
export const picture = signal<Picture | null>(null)
export const graph = signal<Graph | null>(null)
export const lostSince = signal<number | null>(null)
export const tick = signal(0)
export const trouble = signal<string | null>(null)
let received = 0

/** The clock of the warehouse, which may race (the demo) and stands still while the connection is lost. */
export function nowUs(): number {
  const known = picture.peek()
  if (!known) return Date.now() * 1000
  const until = lostSince.peek() ?? Date.now()
  return known.at_us + Math.max(0, until - received) * 1000 * known.speed
}
export function staleness(row: Row, now = nowUs()): number | null {
  if (!row.known) return null
  return row.since_us === null ? 0 : Math.max(0, now - row.since_us)
}
export const levels = computed(() => {
  tick.value
  const known = picture.value
  const found = new Map<string, { level: Level; stale: number | null; row: Row }>()
  if (!known) return found
  const now = nowUs()
  for (const [name, row] of Object.entries(known.tables)) {
    const stale = staleness(row, now)
    found.set(name, { level: levelOf(stale, row.target_us), stale, row })
  }
  return found
})

let ask: (what: string) => void = () => {}
function onMessage(message: Message) {
  if (message.kind === 'picture') {
    received = message.received
    lostSince.value = null
    picture.value = message.picture
  } else if (message.kind === 'change') {
    received = message.received
    lostSince.value = null
    if (picture.value) picture.value = applyChange(picture.value, message.change)
  } else if (message.kind === 'lost') {
    if (lostSince.value === null) lostSince.value = message.since
    void whoAmI()
  }
}
export function startLive() {
  if (typeof SharedWorker !== 'undefined') {
    const worker = new SharedWorker(new URL('./live.worker.ts', import.meta.url), { type: 'module', name: 'penstock-live' })
    worker.port.onmessage = (event) => onMessage(event.data)
    worker.port.start()
    ask = (what) => worker.port.postMessage(what)
    addEventListener('pagehide', () => worker.port.postMessage('bye'))
  } else {
    const stream = follow(onMessage)
    ask = (what) => what === 'again' && stream.again()
  }
  setInterval(() => {
    if (lostSince.value === null && !document.hidden) tick.value++
  }, 1000)
}

export class ApiError extends Error {
  constructor(readonly status: number, message: string, readonly body: any) {
    super(message)
  }
}
export async function api<T = any>(path: string, method = 'GET', body?: unknown, headers: Record<string, string> = {}): Promise<T> {
  let answer: Response
  try {
    answer = await fetch(path, {
      method,
      headers: { ...(body !== undefined ? { 'content-type': 'application/json' } : {}), ...headers },
      body: body !== undefined ? JSON.stringify(body) : undefined,
    })
  } catch {
    throw new ApiError(0, 'the server does not answer', null)
  }
  const text = await answer.text()
  let found: any = null
  try {
    found = text ? JSON.parse(text) : null
  } catch {
    found = text
  }
  if (!answer.ok) {
    if (answer.status === 401) denied.value = true
    throw new ApiError(answer.status, found?.detail ?? `the server answered ${answer.status}`, found)
  }
  return found
}
export async function whoAmI() {
  try {
    const found = await api<Session>('/v1/session')
    setZone(found.zone)
    session.value = found
    denied.value = false
    if (!graph.value) graph.value = await api<Graph>('/v1/graph')
  } catch (error) {
    if (error instanceof ApiError && (error.status === 401 || error.status === 403)) trouble.value = error.message
  }
}
export async function logIn(token: string) {
  await api('/v1/session', 'POST', { token })
  trouble.value = null
  await whoAmI()
  ask('again')
}
export async function logOut() {
  await api('/v1/session', 'DELETE')
  session.value = null
  picture.value = null
  denied.value = true
}
export const mayChange = computed(() => session.value?.operator ?? false)
