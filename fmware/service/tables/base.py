"""What all tables have in common: names, bounds, and that they hold only what is known."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

__all__ = [
    "OBJECT",
    "Hashes",
    "Name",
    "Positive",
    "Seconds",
    "Table",
    "Variable",
    "Whose",
    "several",
]

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
"""A name that can stand in a path, a header and a metric."""
Whose = Name | Literal["*"]
"""A tenant, or all of them."""
Positive = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]
OBJECT = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
"""The name of an environment variable, which holds a secret that the file must not."""


NOTHING = sha256(b"").hexdigest()


def several(value: Any) -> Any:
    """One text may stand for a list of one."""
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


def _hex(value: tuple[str, ...]) -> tuple[str, ...]:
    for each in value:
        if not re.fullmatch(r"[0-9a-fA-F]{64}", each):
            raise ValueError("not 64 hex digits: printf %s TOKEN | sha256sum")
        if each.lower() == NOTHING:
            raise ValueError("the SHA-256 of nothing: TOKEN was empty when it was made")
    return tuple(each.lower() for each in value)


Hashes = Annotated[tuple[str, ...], BeforeValidator(several), AfterValidator(_hex)]
"""SHA-256 of tokens: they are known without being written down."""


class Table(BaseModel):
    """A table of the file: keys that nobody knows are errors, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
