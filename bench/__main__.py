"""`python -m bench` lists the benchmarks; `python -m bench NAME [--json] [...]` runs one.

With --json the last line of the output is one JSON object, and the table goes to stderr.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from pathlib import Path
from typing import TextIO

HELPERS = {
    "__main__",
    "clock",
    "company",
    "hostile",
    "matchers",
    "pages",
    "paper_covering",
    "rivals",
    "serving",
    "watched",
}


def names() -> list[str]:
    """The benchmarks, by module name."""
    modules = pkgutil.iter_modules([str(Path(__file__).parent)])
    return sorted(module.name for module in modules if module.name not in HELPERS)


def print_table(rows: dict[str, object], out: TextIO) -> None:
    """Keys and values in two columns; what is nested is indented below its key."""
    width = max((len(key) for key in rows), default=0)
    for key, value in rows.items():
        if isinstance(value, dict):
            print(f"{key}:", file=out)
            for inner, text in value.items():
                print(f"  {inner}  {_shown(text)}", file=out)
        else:
            print(f"{key:<{width}}  {_shown(value)}", file=out)


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if type(value) is int else str(value)


def main(argv: list[str]) -> int:
    """Run the benchmark that the arguments name."""
    as_json = "--json" in argv
    argv = [argument for argument in argv if argument != "--json"]
    known = names()
    if not argv or argv[0] in ("-h", "--help"):
        for name in known:
            about = importlib.import_module(f"bench.{name}").__doc__ or ""
            print(f"{name:<12}  {about.strip().splitlines()[0] if about.strip() else ''}")
        return 0
    if argv[0] not in known:
        print(f"no benchmark {argv[0]!r}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    result: dict[str, object] = importlib.import_module(f"bench.{argv[0]}").run(argv[1:])
    print_table(result, sys.stderr if as_json else sys.stdout)
    if as_json:
        print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
