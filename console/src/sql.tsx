// SQL with its words told apart; names of tables are links.
const WORDS = new Set('select from where group by order having join left right full inner outer cross on and or not in is null as with union all distinct case when then else end between like over partition rows range interval lateral view explode limit using semi anti exists true false asc desc'.split(' '))

export function Sql({ text, names = [] }: { text: string; names?: string[] }) {
  const known = new Set(names)
  const parts = text.trim().match(/--[^\n]*|'(?:[^'\\]|\\.|'')*'|`[^`]*`|[A-Za-z_][\w]*|\d[\w.]*|\s+|./g) ?? []
  return (
    <pre class="sql" tabIndex={0}>
      {parts.map((part) =>
        part.startsWith('--') ? <span class="c">{part}</span>
        : part.startsWith("'") ? <span class="s">{part}</span>
        : known.has(part.replaceAll('`', '')) ? <a href={`#/table/${encodeURIComponent(part.replaceAll('`', ''))}`}>{part}</a>
        : WORDS.has(part.toLowerCase()) ? <span class="k">{part}</span>
        : part)}
    </pre>
  )
}
