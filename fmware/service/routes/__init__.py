"""The routes under /v1, and those of operators: a router each.

- `statements`: create, replace, delete, list, bulk, validate, explain; `try`.
- `messages`: one or a batch, answered at once or with a receipt.
- `matches`: the log, by page, as server-sent events and over a WebSocket.
- `operations`: health, readiness, metrics, stats, report.
- `page`: what a browser shows at `/`.
"""
