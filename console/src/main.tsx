import { computed, signal } from '@preact/signals'
import { render, type ComponentType } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { age, clock, zoneName } from './format'
import { denied, logIn, logOut, lostSince, nowUs, picture, session, startLive, tick, trouble, whoAmI } from './live'
import { Now } from './pages/now'
import './style.css'
import { act, said } from './ui'

export const path = signal(location.hash.slice(1) || '/')
addEventListener('hashchange', () => {
  path.value = location.hash.slice(1) || '/'
  scrollTo(0, 0)
})
export const route = computed(() => path.value.split('?')[0].split('/').filter(Boolean).map(decodeURIComponent))

type Page = ComponentType<{ name?: string }>
const later = (load: () => Promise<Page>) => {
  let known: Page | null = null
  return function Later(props: { name?: string }) {
    const [Found, set] = useState<Page | null>(() => known)
    useEffect(() => {
      if (!known) void load().then((page) => set(() => (known = page)))
    }, [])
    return Found ? <Found {...props} /> : <p class="dim">loading …</p>
  }
}
const PAGES: [string, string, Page][] = [
  ['', 'Now', Now],
  ['tables', 'Tables', later(async () => (await import('./pages/docs')).Docs)],
  ['time', 'Time', later(async () => (await import('./pages/time')).Time)],
  ['what-if', 'What if', later(async () => (await import('./pages/whatif')).WhatIf)],
  ['requests', 'Requests', later(async () => (await import('./pages/requests')).Requests)],
  ['queries', 'Queries', later(async () => (await import('./pages/queries')).Queries)],
  ['health', 'Health', later(async () => (await import('./pages/health')).Health)],
]
const TablePage = later(async () => (await import('./pages/table')).TablePage)

function Theme() {
  const [theme, set] = useState(() => localStorage.getItem('theme') ?? 'auto')
  useEffect(() => {
    if (theme === 'auto') delete document.documentElement.dataset.theme
    else document.documentElement.dataset.theme = theme
    localStorage.setItem('theme', theme)
    dispatchEvent(new Event('theme'))
  }, [theme])
  const next = { auto: 'dark', dark: 'light', light: 'auto' }[theme] ?? 'auto'
  return (
    <button class="plain" onClick={() => set(next)} aria-label={`Colours: ${theme}; change to ${next}`} title={`Colours: ${theme}`}>
      {{ auto: '◐', dark: '☾', light: '☀' }[theme]}
    </button>
  )
}
function LiveSign() {
  tick.value
  const lost = lostSince.value
  if (lost !== null) return null
  const known = picture.value
  if (!known) return <span class="dim">connecting …</span>
  return (
    <span class="live" title={`all times in ${zoneName()}`}>
      <i aria-hidden="true" /> live <span class="num dim nophone">{clock(nowUs())} {zoneName()}</span>
    </span>
  )
}
function Lost() {
  const [, set] = useState(0)
  useEffect(() => {
    const timer = setInterval(() => set((n) => n + 1), 1000)
    return () => clearInterval(timer)
  }, [])
  if (lostSince.value === null) return null
  const since = lostSince.value
  return (
    <div class="lost" role="alert">
      <strong>The connection is lost</strong> since {age((Date.now() - since) * 1000)}. What is shown is as of {clock(nowUs())} and stands still; it goes on by itself when the server is back.
    </div>
  )
}
function Login() {
  const [token, set] = useState('')
  const [bad, setBad] = useState('')
  return (
    <main class="login">
      <form
        onSubmit={(event) => {
          event.preventDefault()
          logIn(token.trim()).catch((error) => setBad(error.message))
        }}
      >
        <h1>Penstock</h1>
        <p>This warehouse wants a token. <code>penstock token add PROFILE</code> makes one.</p>
        <label>
          Token
          <input type="password" name="token" autocomplete="current-password" value={token} onInput={(event) => set(event.currentTarget.value)} autofocus required />
        </label>
        {(bad || trouble.value) && <p class="problem" role="alert">{bad || trouble.value}</p>}
        <button class="primary">Log in</button>
      </form>
    </main>
  )
}
function App() {
  if (denied.value) return <Login />
  const [first, name] = route.value
  const page = PAGES.find(([key]) => key === (first ?? ''))
  const who = session.value
  const title = first === 'table' ? name : (page?.[1] ?? 'Penstock')
  useEffect(() => {
    document.title = `${title} · ${who?.project ?? 'Penstock'}`
  }, [title, who])
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById('main')?.focus() }}>
        Skip to the page
      </a>
      <header class="top">
        <a class="brand" href="#/">Penstock</a>
        <span class="project">{who?.project}</span>
        <nav aria-label="Pages">
          {PAGES.map(([key, label]) => (
            <a href={`#/${key}`} aria-current={(first ?? '') === key || (first === 'table' && key === 'tables') ? 'page' : undefined}>{label}</a>
          ))}
        </nav>
        <span class="right">
          {who?.profile && (
            <span class="who" title={who.operator ? 'may look and act' : 'may only look'}>
              {who.profile} <em>{who.operator ? 'operator' : 'reader'}</em>
            </span>
          )}
          {who?.profile && <button class="plain" onClick={() => act(async () => logOut())}>Log out</button>}
          <LiveSign />
          <Theme />
        </span>
      </header>
      <Lost />
      {picture.value && !picture.value.running && lostSince.value === null && (
        <div class="note" role="status">
          Nobody keeps these tables fresh now: <code>penstock serve</code> or <code>penstock run</code> does. What is asked for here waits until then.
        </div>
      )}
      {picture.value?.faults.map((fault) => (
        <div class="lost" role="alert">{fault.part} has not been available for {age(nowUs() - fault.since_us)}: {fault.reason}. It is waited for: updates go on by themselves.</div>
      ))}
      <main id="main" tabIndex={-1}>
        {first === 'table' && name ? <TablePage name={name} key={name} /> : page ? <PageOf page={page[2]} key={page[0]} /> : <p>There is no such page.</p>}
      </main>
      <div class={`said ${said.value?.bad ? 'bad' : ''}`} role="status" aria-live="polite">
        {said.value && (
          <p>
            {said.value.text} <button class="plain" aria-label="Dismiss" onClick={() => (said.value = null)}>✕</button>
          </p>
        )}
      </div>
    </>
  )
}
const PageOf = ({ page: Page }: { page: Page }) => <Page />

addEventListener('keydown', (event) => {
  const typing = (event.target as HTMLElement).closest('input, textarea, select, [contenteditable]')
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return
  if (event.key === '/') {
    const box = document.querySelector<HTMLInputElement>('input[type=search]')
    if (box) {
      event.preventDefault()
      box.focus()
    }
  }
})
void whoAmI().then(() => startLive())
render(<App />, document.getElementById('app')!)
