import { layered } from './layout'

onmessage = (event) => {
  const { id, count, edges, aspect } = event.data
  const placed = layered(count, edges, aspect)
  postMessage({ id, placed }, { transfer: [placed.x.buffer, placed.y.buffer] })
}
