// Small parts that every page uses.
import { signal, useSignal } from '@preact/signals'
import type { ComponentChildren } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { age, duration, GLYPH, instant, LEVEL_NAME, type Level } from './format'
import { ApiError, nowUs } from './live'

export function Badge({ level }: { level: Level }) {
  return (
    <span class={`badge ${level}`} role="img" aria-label={LEVEL_NAME[level]} title={LEVEL_NAME[level]}>
      {GLYPH[level]}
    </span>
  )
}
export const TableLink = ({ name }: { name: string }) => <a href={`#/table/${encodeURIComponent(name)}`}>{name}</a>
/** How long ago, with the time itself to be seen by pointing at it. */
export const Ago = ({ us }: { us: number | null | undefined }) =>
  us === null || us === undefined ? <>-</> : <time title={instant(us, true)}>{age(Math.max(0, nowUs() - us))} ago</time>
export const At = ({ us }: { us: number | null | undefined }) =>
  us === null || us === undefined ? <>-</> : <time title={`${age(Math.max(0, nowUs() - us))} ago`}>{instant(us)}</time>
export const Took = ({ us }: { us: number | null }) => <span class="num">{duration(us)}</span>

export function Panel({ title, more, children, id, wide }: { title: ComponentChildren; more?: ComponentChildren; children: ComponentChildren; id?: string; wide?: boolean }) {
  return (
    <section class={`panel ${wide ? 'wide' : ''}`} id={id}>
      <header>
        <h2>{title}</h2>
        {more}
      </header>
      {children}
    </section>
  )
}

// What the server said when something was asked of it; read out by screen readers.
export const said = signal<{ text: string; bad: boolean } | null>(null)
let timer = 0
export function say(text: string, bad = false) {
  said.value = { text, bad }
  clearTimeout(timer)
  timer = window.setTimeout(() => (said.value = null), bad ? 12_000 : 6_000)
}
export async function act(what: () => Promise<string | void>) {
  try {
    const text = await what()
    if (text) say(text)
  } catch (error) {
    say(error instanceof Error ? error.message : String(error), true)
  }
}

export interface Loaded<T> { data: T | null; error: string | null; loading: boolean; again: () => void }
/** Loads when what it depends on changes; keeps what was there until the new is. */
export function useLoad<T>(load: () => Promise<T>, on: unknown[]): Loaded<T> {
  const [state, set] = useState<{ data: T | null; error: string | null; loading: boolean }>({ data: null, error: null, loading: true })
  const [round, again] = useState(0)
  const last = useRef(0)
  useEffect(() => {
    const mine = ++last.current
    set((old) => ({ ...old, loading: true }))
    load().then(
      (data) => mine === last.current && set({ data, error: null, loading: false }),
      (error) => mine === last.current && set((old) => ({ ...old, error: error instanceof ApiError ? error.message : String(error), loading: false })),
    )
    return () => void (last.current === mine && last.current++)
  }, [...on, round])
  return { ...state, again: () => again((n) => n + 1) }
}
export function Told({ of, children }: { of: Loaded<unknown>; children?: ComponentChildren }) {
  if (of.error) return <p class="problem">{of.error}</p>
  if (of.loading && !of.data) return <p class="dim">loading …</p>
  return <>{children}</>
}

/** A dialog that is left with Escape, keeps the focus and gives it back. */
export function Dialog({ title, close, children }: { title: string; close: () => void; children: ComponentChildren }) {
  const ref = useRef<HTMLDialogElement>(null)
  useEffect(() => {
    ref.current?.showModal()
  }, [])
  return (
    <dialog ref={ref} aria-label={title} onClose={close} onClick={(event) => event.target === ref.current && ref.current?.close()}>
      <div class="dialog">
        <header>
          <h2>{title}</h2>
          <button class="plain" aria-label="Close" onClick={() => ref.current?.close()}>
            ✕
          </button>
        </header>
        {children}
      </div>
    </dialog>
  )
}

export interface Column<T> { name: string; of: (row: T) => ComponentChildren; sort?: (row: T) => number | string; right?: boolean; wrap?: boolean; phone?: false }
/** A plain table with headers that sort. */
export function Grid<T>({ rows, columns, keyOf, label, empty, first, by }: {
  rows: T[]; columns: Column<T>[]; keyOf: (row: T) => string; label: string; empty?: string; first?: number; by?: number
}) {
  const sorted = useSignal<{ by: number; down: boolean } | null>(by === undefined ? null : { by, down: true })
  const all = useSignal(false)
  let shown = rows
  const order = sorted.value
  if (order && columns[order.by]?.sort) {
    const value = columns[order.by].sort!
    shown = [...rows].sort((a, b) => {
      const [x, y] = [value(a), value(b)]
      return (x < y ? -1 : x > y ? 1 : 0) * (order.down ? -1 : 1)
    })
  }
  if (!rows.length) return <p class="dim">{empty ?? 'nothing'}</p>
  const cut = first && !all.value && shown.length > first
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={label}>
      <table>
        <caption class="hidden">{label}</caption>
        <thead>
          <tr>
            {columns.map((column, i) => (
              <th scope="col" class={`${column.right ? 'right' : ''} ${column.phone === false ? 'nophone' : ''}`} aria-sort={order?.by === i ? (order.down ? 'descending' : 'ascending') : undefined}>
                {column.sort ? (
                  <button class="sort" onClick={() => (sorted.value = { by: i, down: order?.by === i ? !order.down : true })}>
                    {column.name}
                    <span aria-hidden="true">{order?.by === i ? (order.down ? ' ▾' : ' ▴') : ''}</span>
                  </button>
                ) : (
                  column.name
                )}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {(cut ? shown.slice(0, first) : shown).map((row) => (
            <tr key={keyOf(row)}>
              {columns.map((column, i) => {
                const classes = `${column.right ? 'right num' : ''} ${column.wrap ? 'wrap' : ''} ${column.phone === false ? 'nophone' : ''}`
                return i === 0 ? <th scope="row" class={classes}>{column.of(row)}</th> : <td class={classes}>{column.of(row)}</td>
              })}
            </tr>
          ))}
        </tbody>
      </table>
      {cut && (
        <button class="plain more" onClick={() => (all.value = true)}>
          all {rows.length}
        </button>
      )}
    </div>
  )
}
export function useDark(): boolean {
  const query = matchMedia('(prefers-color-scheme: dark)')
  const read = () => (document.documentElement.dataset.theme ? document.documentElement.dataset.theme === 'dark' : query.matches)
  const [dark, set] = useState(read())
  useEffect(() => {
    const look = () => set(read())
    query.addEventListener('change', look)
    addEventListener('theme', look)
    return () => {
      query.removeEventListener('change', look)
      removeEventListener('theme', look)
    }
  }, [])
  return dark
}
