"""The service: messages come from brokers and over HTTP, matches go out, and nothing is lost.

- `settings`: what `fmware.toml` says; `template` writes a commented one.
- `envelope`, `flow`, `engine`, `worker`, `dedupe`: the way of a message through worker processes.
- `brokers`: where messages come from and matches go to.
- `app`, `routes`, `store`, `tenants`, `log`, `events`, `metrics`, `server`: the HTTP side.
- `webhooks`, `addresses`: matches sent to other people's servers, and which of them may be called.
- `page`: what a browser shows at `/`.

It needs `fmware[service]`; nothing of it is imported by `import fmware`.
"""
