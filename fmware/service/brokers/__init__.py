"""Sources and sinks: files and directories, pipes, NATS JetStream, RabbitMQ, memory, one's own.

`source_of` and `sink_of` make those that the configuration names. One of `kind = "python"` is a
class of your own, `use = "module:Class"`, with the methods that `fmware.service.flow` says. The
module is imported as Python imports it: from the environment that fmware is installed in, or from a
folder of PYTHONPATH. The folder of the configuration is not searched.
It is given `name`, a source `tenant`, too, and its `options`:

    [[sources]]
    kind = "python"
    name = "journal"
    use = "our.journal:Tail"
    options = { path = "journal.xml" }
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from fmware.service.errors import BrokerError
from fmware.service.flow import Sink, Source

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["KINDS", "sink_of", "source_of"]

KINDS: Final = {
    "files": "fmware.service.brokers.files:Files",
    "stdio": "fmware.service.brokers.stdio:Stdio",
    "nats": "fmware.service.brokers.nats:Nats",
    "amqp": "fmware.service.brokers.amqp:Amqp",
    "memory": "fmware.service.brokers.memory:Memory",
}
"""Where the kinds that are known here live; `Source` or `Sink` is added to the name."""
SIZED: Final = ("files", "stdio")
"""Sources that read as much as there is, and so must be told how much is too much."""
BEYOND: Final = ("kind", "use", "options", "deliveries")
"""Keys of an entry that are not the class's."""

FOUND: Final = (
    "a class is named module:Class, and its module is installed beside fmware or lies in a folder "
    "of PYTHONPATH; the folder of the configuration is not searched"
)
"""How classes of `kind = "python"` are found."""


def source_of(about: Mapping[str, Any], *, largest: int = 64 << 20) -> Source:
    """The source that an entry of the configuration describes; `largest` bytes a message."""
    more = {"largest": largest} if about["kind"] in SIZED else {}
    made = _made(about, "Source", more)
    if not isinstance(made, Source):
        raise BrokerError(f"source {about['name']}: {_lacks(made, Source)}")
    return made


def sink_of(about: Mapping[str, Any]) -> Sink:
    """The sink that an entry of the configuration describes."""
    made = _made(about, "Sink", {})
    if not isinstance(made, Sink):
        raise BrokerError(f"sink {about['name']}: {_lacks(made, Sink)}")
    return made


def _made(about: Mapping[str, Any], role: str, more: Mapping[str, Any]) -> object:
    kind, name = about["kind"], about["name"]
    use = about.get("use", "") if kind == "python" else KINDS.get(kind, "") + role
    options = {key: value for key, value in about.items() if key not in BEYOND}
    options |= {**about.get("options", {}), **more}
    if role == "Sink":
        options.pop("tenant", None)
    try:
        return _loaded(use)(**options)
    except (ImportError, AttributeError, ValueError) as error:
        said = f"{role.lower()} {name}: cannot load {use!r}: {error}"
        raise BrokerError(f"{said}; {FOUND}" if kind == "python" else said) from error
    except TypeError as error:
        raise BrokerError(f"{role.lower()} {name}: {use}: {error}") from error


def _loaded(use: str) -> Any:
    module, colon, name = use.partition(":")
    if not (module and colon and name):
        raise ValueError("it is not module:Class")
    return getattr(import_module(module), name)


def _lacks(made: object, wanted: type) -> str:
    needed = ("name", "open", "deliveries", "close", "write", "dead")
    names = [each for each in needed if hasattr(wanted, each) or each in wanted.__annotations__]
    missing = [each for each in names if not hasattr(made, each)]
    return f"{type(made).__name__} has no {', '.join(missing)}"
