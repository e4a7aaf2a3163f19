"""Random XML documents for Hypothesis, as bytes: well-formed, with everything that XML has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["xml_documents"]

NAMES = ("a", "b", "c.d", "e-f", "_g", "ü", "名", "record")
ATTRIBUTES = ("x", "y", "id.n", "ß", "record")
URIS = ("urn:one", "http://two.example/#ns", "urn:three")
PREFIXES = ("p", "q", "ns.1")

_TEXTS = st.one_of(
    st.sampled_from(
        (" ", "\n", "\n\t", "x", "&amp;", "&#x41;", "&#252;", "&lt;tag>", "]]", "\r\n")
    ),
    st.text(
        st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="<&>\ufffe\uffff"),
        max_size=8,
    ),
)
_CDATA = st.sampled_from(("y", "x", "<record>", "</record>", "&amp;", "&uuml;", " ", "]]", "<!--"))
_COMMENTS = st.sampled_from(("", " c ", "<record>", "</record>", "&x;", "'", '"', "<?"))
_INSTRUCTIONS = st.sampled_from(("p", "p x", "p <record>", "p '", "xml-style a='>'"))
_VALUES = st.one_of(
    st.sampled_from(
        ("", " ", "1", "&quot;", "&#10;", "a>b", "</record>".replace("<", "&lt;"), "&amp;amp;")
    ),
    st.text(
        st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="<&\"'\ufffe\uffff"),
        max_size=6,
    ),
)


@st.composite
def _element(
    draw: Callable[..., object],
    names: Sequence[str],
    attributes: Sequence[str],
    scope: tuple[str, ...],
    depth: int,
) -> str:
    declared = (
        draw(st.lists(st.sampled_from(("", *PREFIXES)), max_size=2, unique=True))
        if draw(st.integers(0, 3)) == 0
        else []
    )
    assert isinstance(declared, list)
    space = "".join(
        f' xmlns{":" + prefix if prefix else ""}="{draw(st.sampled_from(URIS))}"'
        for prefix in declared
    )
    scope = tuple(dict.fromkeys((*scope, *(prefix for prefix in declared if prefix))))
    name = str(draw(st.sampled_from(names)))
    if scope and draw(st.booleans()):
        name = f"{draw(st.sampled_from(scope))}:{name}"
    pairs = (
        draw(
            st.lists(
                st.tuples(st.sampled_from(attributes), _VALUES, st.sampled_from("'\"")),
                max_size=3,
                unique_by=lambda pair: pair[0],
            )
        )
        if attributes
        else []
    )
    assert isinstance(pairs, list)
    # One prefix an element: two could be bound to one namespace and the names collide.
    prefix = f"{draw(st.sampled_from(scope))}:" if scope and draw(st.booleans()) else ""
    tag = (
        name
        + space
        + "".join(f" {prefix}{key}={quote}{value}{quote}" for key, value, quote in pairs)
    )
    content = "".join(draw(st.lists(_content(names, attributes, scope, depth), max_size=4)))  # type: ignore[arg-type]
    if not content and draw(st.booleans()):
        return f"<{tag}/>"
    return (
        f"<{tag}>{content}</{name} >"
        if draw(st.integers(0, 7)) == 0
        else f"<{tag}>{content}</{name}>"
    )


def _content(
    names: Sequence[str], attributes: Sequence[str], scope: tuple[str, ...], depth: int
) -> st.SearchStrategy[str]:
    kinds = [
        _TEXTS,
        _TEXTS,
        _CDATA.map("<![CDATA[{}]]>".format),
        _COMMENTS.map("<!--{}-->".format),
        _INSTRUCTIONS.map("<?{}?>".format),
    ]
    if depth > 0:
        inner = _element(names, attributes, scope, depth - 1)
        kinds += [inner, inner, inner]
    return st.one_of(kinds)


@st.composite
def _chain(draw: Callable[..., object], names: Sequence[str], attributes: Sequence[str]) -> str:
    """Deep recursion: a long chain of few names around a small element."""
    chain = draw(st.lists(st.sampled_from(names[:2]), min_size=20, max_size=80))
    assert isinstance(chain, list)
    inner = draw(_element(names, attributes, (), 1))
    return (
        "".join(f"<{name}>" for name in chain)
        + f"{inner}"
        + "".join(f"</{name}>" for name in reversed(chain))
    )


def xml_documents(
    names: Sequence[str] = NAMES, attributes: Sequence[str] = ATTRIBUTES, depth: int = 4
) -> st.SearchStrategy[bytes]:
    """Documents with these names of elements and attributes, in UTF-8.

    Mixed content, CDATA sections, comments, instructions, references, white space, namespaces
    declared again on the way down, and now and then a deep chain.
    """
    roots = st.one_of(
        _element(names, attributes, (), depth),
        _element(names, attributes, (), depth),
        _element(names, attributes, (), depth),
        _chain(names, attributes),
    )
    heads = st.sampled_from(
        (
            "",
            '<?xml version="1.0"?>',
            "<?xml version='1.0' encoding='UTF-8'?>\n",
            "<!-- head -->\n",
            "<?pi?>",
        )
    )
    tails = st.sampled_from(("", "\n", "<!-- tail -->", "<?end?>"))
    return st.tuples(heads, roots, tails).map(lambda parts: "".join(parts).encode())
