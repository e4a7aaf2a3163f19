"""The package offers what it means to offer."""

from __future__ import annotations

from fmware import xpath


def test_the_exported_names_exist_and_are_sorted() -> None:
    assert all(hasattr(xpath, name) for name in xpath.__all__)
    classes = [name for name in xpath.__all__ if not name.islower() and not name.isupper()]
    functions = [name for name in xpath.__all__ if name.islower()]
    assert classes == sorted(classes)
    assert functions == [
        "canonical",
        "check_expression",
        "check_prefixes",
        "clark",
        "guard_text",
        "parse",
        "parse_expression",
        "plan",
        "plan_of",
        "split",
        "to_text",
    ]
