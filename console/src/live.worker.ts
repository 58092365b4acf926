// One stream of events for all tabs: browsers open six connections to a server, and a seventh tab would wait for ever.
import { follow } from './follow'

const ports = new Set<MessagePort>()
const stream = follow((message) => {
  for (const port of ports) port.postMessage(message)
})
;(self as unknown as { onconnect: (event: MessageEvent) => void }).onconnect = (event) => {
  const port = event.ports[0]
  ports.add(port)
  port.onmessage = (asked) => {
    if (asked.data === 'bye') ports.delete(port)
    if (asked.data === 'again') stream.again()
  }
  port.start()
  port.postMessage(stream.whole())
}
