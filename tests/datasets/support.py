"""What the tests of the makers share."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

from lxml import etree

from fmware.datasets import dtd_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lxml.etree import _Element


def validator(text: str | bytes) -> etree.DTD:
    """lxml's own DTD, the oracle for validity."""
    return etree.DTD(BytesIO(text.encode() if isinstance(text, str) else text))


def carried(name: str) -> etree.DTD:
    """The oracle for a DTD the project carries."""
    return validator(dtd_text(name))


def assert_valid(dtd: etree.DTD, made: Iterable[bytes]) -> None:
    """Every document is well-formed and valid."""
    for document in made:
        dtd.assertValid(etree.fromstring(document))


def depth_of(element: _Element) -> int:
    """Levels of a tree."""
    return 1 + max(map(depth_of, element), default=0)
