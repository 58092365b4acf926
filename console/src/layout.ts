// A layered layout (Sugiyama): layers by the longest way, order by the means of neighbours in a fixed number of sweeps, tall layers folded
// into columns beside each other, so that space is used both ways.
export interface Placed { x: Float64Array; y: Float64Array; width: number; height: number }
export const BOX_W = 150
export const BOX_H = 44
const GAP_X = 58
const GAP_Y = 14
const SUB_X = 16
const SWEEPS = 8

export function layered(count: number, edges: [number, number][], aspect = 1.9): Placed {
  const out: number[][] = Array.from({ length: count }, () => [])
  const into: number[][] = Array.from({ length: count }, () => [])
  // Edges that close a circle are left out of the layering.
  const state = new Uint8Array(count)
  const order: number[] = []
  const raw: number[][] = Array.from({ length: count }, () => [])
  for (const [a, b] of edges) if (a !== b) raw[a].push(b)
  for (let start = 0; start < count; start++) {
    if (state[start]) continue
    const stack: [number, number][] = [[start, 0]]
    state[start] = 1
    while (stack.length) {
      const top = stack[stack.length - 1]
      if (top[1] < raw[top[0]].length) {
        const next = raw[top[0]][top[1]++]
        if (state[next] === 1) continue
        out[top[0]].push(next)
        into[next].push(top[0])
        if (!state[next]) {
          state[next] = 1
          stack.push([next, 0])
        }
      } else {
        state[top[0]] = 2
        order.push(top[0])
        stack.pop()
      }
    }
  }
  order.reverse()
  const layer = new Int32Array(count)
  for (const node of order) for (const next of out[node]) layer[next] = Math.max(layer[next], layer[node] + 1)
  // What only feeds later layers stands just before the first of them.
  for (const node of [...order].reverse())
    if (!into[node].length && out[node].length) layer[node] = Math.min(...out[node].map((next) => layer[next])) - 1
  const layers: number[][] = []
  for (const node of order) (layers[layer[node]] ??= []).push(node)
  for (let i = 0; i < layers.length; i++) layers[i] ??= []
  const place = new Float64Array(count)
  for (const some of layers) some.forEach((node, i) => (place[node] = (i + 0.5) / some.length))
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const down = sweep % 2 === 0
    for (const some of down ? layers : [...layers].reverse()) {
      const mean = new Map<number, number>()
      for (const node of some) {
        const near = down ? into[node] : out[node]
        mean.set(node, near.length ? near.reduce((sum, other) => sum + place[other], 0) / near.length : place[node])
      }
      some.sort((a, b) => mean.get(a)! - mean.get(b)!)
      some.forEach((node, i) => (place[node] = (i + 0.5) / some.length))
    }
  }
  // So many boxes above each other that the whole is about as wide as the screen.
  const stepX = BOX_W + GAP_X
  const stepY = BOX_H + GAP_Y
  let tallest = Math.max(1, ...layers.map((some) => some.length))
  const widthOf = (tall: number) => layers.reduce((sum, some) => sum + Math.max(1, Math.ceil(some.length / tall)) * (BOX_W + SUB_X) + GAP_X, 0)
  while (tallest > 4 && widthOf(tallest) < aspect * tallest * stepY) tallest = Math.max(4, Math.floor(tallest * 0.92))
  const x = new Float64Array(count)
  const y = new Float64Array(count)
  const height = tallest * stepY
  let left = 0
  for (const some of layers) {
    const columns = Math.max(1, Math.ceil(some.length / tallest))
    const rows = Math.ceil(some.length / columns)
    const gap = Math.min(stepY * 2.2, height / Math.max(1, rows))
    const top = (height - gap * rows) / 2 + gap / 2
    some.forEach((node, i) => {
      x[node] = left + (i % columns) * (BOX_W + SUB_X)
      y[node] = top + Math.floor(i / columns) * gap
    })
    left += columns * (BOX_W + SUB_X) - SUB_X + GAP_X
  }
  return { x, y, width: Math.max(stepX, left - GAP_X), height }
}
