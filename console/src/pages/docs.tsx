// Every table with what is said of it: the index of the docs of the warehouse.
import { useState } from 'preact/hooks'
import { age, levelOf } from '../format'
import { graph, picture, staleness, tick } from '../live'
import { Badge, Grid, Panel, TableLink } from '../ui'

export function Docs() {
  tick.value
  const [search, set] = useState('')
  const words = search.toLowerCase().split(/\s+/).filter(Boolean)
  const all = graph.value?.tables ?? []
  const found = all.filter((one) => {
    const text = [one.name, one.description, one.feed, one.flow, one.kind, ...one.columns].join(' ').toLowerCase()
    return words.every((word) => text.includes(word))
  })
  return (
    <Panel title={<h1>Tables: {found.length === all.length ? all.length : `${found.length} of ${all.length}`}</h1>} more={<input type="search" placeholder="name, column, words  /" aria-label="Search tables, columns and descriptions" value={search} onInput={(event) => set(event.currentTarget.value)} size={32} />}>
      <Grid
        label="All tables with their descriptions"
        rows={found}
        keyOf={(one) => one.name}
        empty="no table has all these words"
        columns={[
          {
            name: 'table', sort: (one) => one.name,
            of: (one) => {
              const row = picture.value?.tables[one.name]
              return <>{row && <Badge level={levelOf(staleness(row), row.target_us)} />} <TableLink name={one.name} /></>
            },
          },
          { name: 'kind', of: (one) => (one.flow ? `by flow ${one.flow}` : one.kind), sort: (one) => one.kind, phone: false },
          { name: 'description', of: (one) => one.description || <span class="dim">none</span>, wrap: true },
          { name: 'columns', of: (one) => <span class="dim">{one.columns.map((column, i) => <>{i > 0 && ', '}{words.some((word) => column.toLowerCase().includes(word)) ? <mark>{column}</mark> : column}</>)}</span>, wrap: true, phone: false },
          { name: 'partition', of: (one) => one.partition, phone: false },
          { name: 'target', of: (one) => age(one.target_us), right: true, sort: (one) => one.target_us ?? 1e18 },
        ]}
      />
    </Panel>
  )
}
