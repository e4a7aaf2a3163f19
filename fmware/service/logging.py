"""Structured logs on stderr, with the ids of what they are about: JSON, or text on a terminal.

What a request or a message is called is bound for all that is logged on its way (`request`,
`tenant`, `message`, `statement`). uvicorn and other libraries go the same way, but with warnings
and errors alone, also at the level `debug`: below that they tell whole URLs of webhooks, headers
with tokens, and frames with messages.
"""

from __future__ import annotations

import logging
import re
import sys
from typing import TYPE_CHECKING, Final, Literal, TextIO

import structlog

if TYPE_CHECKING:
    from structlog.typing import EventDict, FilteringBoundLogger, Processor

__all__ = ["configure", "logger"]

Format = Literal["auto", "json", "text"]
CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
OURS: Final = "fmware"
TALKATIVE: Final = (
    "aio_pika",
    "aiormq",
    "h11",
    "httpcore",
    "httpx",
    "nats",
    "uvicorn",
    "websockets",
)
"""Libraries that have something to hide."""


def logger(name: str) -> FilteringBoundLogger:
    """A logger; `name` says which part speaks."""
    found: FilteringBoundLogger = structlog.get_logger(part=name)
    return found


def _on_one_line(_: object, __: str, about: EventDict) -> EventDict:
    """Messages of errors repeat what others sent: none of it may look like a line of the log."""
    about["event"] = CONTROL.sub(lambda found: repr(found[0])[1:-1], str(about["event"]))
    return about


class _Lines:
    """Lines that go to a file. One that cannot be written, since whoever reads is gone or the disk
    is full, stops nothing else: it is counted, and told of with the next one that can.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._lost = 0

    def msg(self, line: str) -> None:
        lost = self._lost
        try:
            print(line, file=self._file, flush=True)
        except (OSError, ValueError):
            self._lost += 1
            return
        if lost:
            self._lost -= lost
            logger("log").warning("lines of the log were lost", lines=lost)

    debug = info = warning = error = critical = exception = msg


def configure(level: str = "info", form: Format = "auto") -> None:
    """Have all logs go to stderr, in one shape; `auto` is text where somebody looks on."""
    if form == "auto":
        form = "text" if sys.stderr.isatty() else "json"
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    render: Processor = (
        structlog.processors.JSONRenderer(ensure_ascii=False)
        if form == "json"
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    )
    # What tells of an exception, or keeps what is told on its line, where the renderer does not.
    before: list[Processor] = (
        [structlog.processors.format_exc_info] if form == "json" else [_on_one_line]
    )
    known = logging.getLevelNamesMapping()[level.upper()]
    lines = _Lines(sys.stderr)
    structlog.configure(
        processors=[*shared, *before, render],
        wrapper_class=structlog.make_filtering_bound_logger(known),
        logger_factory=lambda *_: lines,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *before,
                render,
            ],
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(max(known, logging.WARNING))
    logging.getLogger(OURS).setLevel(known)
    for name in TALKATIVE:
        # Whatever root is set to later: what they would say is not for any log.
        logging.getLogger(name).setLevel(max(known, logging.WARNING))
