"""What a notebook shows of tables, indexes, results and reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lxml import html

from fmware import FilterEngine, Index, Middleware, build_index, read
from fmware.labeling.html import CELL, ROWS, html_table

if TYPE_CHECKING:
    from pathlib import Path

STOCK = b"<stock><item sku='p7'><city>Ulm</city></item></stock>"
MESSAGE = b"<order><item sku='p7'/></order>"


def cells(page: str) -> list[list[str]]:
    """The texts of a table, by row; the first row is the header."""
    tree = html.fragment_fromstring(page, create_parent="div")
    return [[cell.text_content() for cell in row] for row in tree.iter("tr")]


def test_a_node_table_shows_its_first_rows() -> None:
    shown = cells(read(b"<a><b c='1 &lt; 2'/></a>")._repr_html_())
    assert [row[1:3] for row in shown[1:]] == [
        ["element", "a"],
        ["element", "b"],
        ["attribute", "c"],
    ]
    assert shown[3][-1] == "1 < 2"


def test_a_table_of_any_size_takes_a_screen() -> None:
    page = read(b"<a>" + b"<b/>" * 1_000 + b"</a>")._repr_html_()
    assert len(cells(page)) == 1 + ROWS
    assert "and 981 more" in page


def test_text_of_strangers_is_escaped_and_cut() -> None:
    page = html_table("<b>", ("<i>",), [("<script>" + "x" * 500,)], 1)
    assert "<script>" not in page
    assert "<b>" not in page
    assert len(cells(page)[1][0]) == CELL


def test_an_index_shows_what_most_nodes_are_called(tmp_path: Path) -> None:
    build_index(STOCK, tmp_path / "stock", record="item", identity="item=@sku")
    with Index.open(tmp_path / "stock") as index:
        assert ["item", "1", "1"] in cells(index._repr_html_())
    assert cells(index._repr_html_()) == [["name", "nodes", "keys"]]


def test_results_and_reports_show_matches(tmp_path: Path) -> None:
    build_index(STOCK, tmp_path / "stock", record="item", identity="item=@sku")
    with Middleware(tmp_path / "stock") as middleware:
        middleware.subscribe("//item/local:city", name="city", returns=["message", "value"])
        results = middleware.publish_batch([MESSAGE, b"<order>"])
        assert cells(results._repr_html_())[1][1:3] == ["1", "city"]
        assert "line 1" in cells(results._repr_html_())[2][3]
        assert cells(results[0]._repr_html_())[1] == ["city", "/order[1]/item[1]", "city", "Ulm"]
        assert cells(middleware.report(seconds=1)._repr_html_())[0][0] == "join"


def test_a_filter_result_shows_statements() -> None:
    engine = FilterEngine()
    engine.subscribe("//item", name="items", tuples=True)
    assert cells(engine.filter(MESSAGE)._repr_html_())[1] == ["items", "1"]
