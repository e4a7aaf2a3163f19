"""`python -m fmware.index DIRECTORY` verifies an index; it ends with 1 if something is wrong.

With `--segment DIRECTORY SHA256` it checks, for the writer, a segment that is not published yet.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fmware.index.verify import check_segment, verify


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--segment"] and len(arguments) == 3:
        problems = check_segment(Path(arguments[1]), arguments[2])
        print("\n".join(problems), end="")
        return 1 if problems else 0
    if len(arguments) != 1:
        print("usage: python -m fmware.index DIRECTORY", file=sys.stderr)
        return 2
    report = verify(arguments[0])
    print(report)
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
