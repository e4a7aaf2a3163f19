"""The streaming matching service: messages in, from HTTP or a broker, and matches out, for weeks.

The way the data goes:

1. A `Source` (`fmware.service.flow`; those for files, pipes and brokers are in
   `fmware.service.brokers`) gives deliveries: an `Envelope` each, to be acknowledged.
2. The `Engine` hands envelopes to worker processes, each with a `Middleware` of its own on the same
   index and with the statements of all tenants. What comes back is an `Outcome` each.
3. A `Flow` hands the hits to its `Sink`s, what cannot be read to the dead letters, and only then
   acknowledges the message.

What tenants try out, and large bodies of requests, go to a `Sandbox`: a process that nothing else
depends on (`fmware.service.sandbox`, `fmware.service.trial`).

Errors are in `fmware.service.errors`.
"""
