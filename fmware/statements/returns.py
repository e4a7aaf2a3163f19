"""What a statement gives for each of its matches."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, TypeAlias

from fmware.statements.errors import StatementError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fmware.xpath import Split

__all__ = ["Returns", "Wanted", "returns_of"]


class Returns(enum.Enum):
    """Something that can be returned of a match."""

    NAME = "name"
    """That the statement matches, once a message, or once a local node; always there."""
    MESSAGE = "message"
    """The path tuple: the nodes of the message, one match a tuple."""
    LOCAL = "local"
    """The local node: its label, its tag and its path."""
    VALUE = "value"
    """The string-value of the node that the statement selects: of the local node if its main path
    goes on in the corpus, else of the message's node; one match a node."""
    FRAGMENT = "fragment"
    """The XML of the node that the statement selects."""


Wanted: TypeAlias = "Returns | str | Iterable[Returns | str]"


def returns_of(wanted: Wanted | None, split: Split) -> frozenset[Returns]:
    """What is to be returned; if nothing is said, the name of a statement that messages alone
    decide, and of any other the path tuple, and the local node if it selects one.

    Values and fragments are read from messages and records node by node, so they must be asked for.
    """
    selects = any(crossing.selects for crossing in split.crossings)
    if wanted is None:
        if not split.crossings:
            return frozenset({Returns.NAME})
        return frozenset({Returns.MESSAGE, Returns.LOCAL} if selects else {Returns.MESSAGE})
    each = [wanted] if isinstance(wanted, (str, Returns)) else wanted
    found = frozenset(map(_known, each))
    if not found:
        raise StatementError("FMS008", "[]", 0, "nothing", _names())
    if not selects and Returns.LOCAL in found:
        hint = "it selects nothing in the corpus: return message, or put local: on the main path"
        raise StatementError("FMS009", "local", 0, "there is no local to return", hint)
    return found


def _known(wanted: Returns | str) -> Returns:
    try:
        return Returns(wanted)
    except ValueError:
        raise StatementError("FMS008", str(wanted), 0, repr(wanted), _names()) from None


def _names() -> str:
    return f"there are {', '.join(each.value for each in Returns)}"
