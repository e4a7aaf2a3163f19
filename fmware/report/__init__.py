"""Reports of runs: what was chosen, what it cost, and what else it could have cost.

The way the data goes:

1. While messages are matched, `fmware.matching.tally` counts what statements do, and operators keep
   a sample of their inputs.
2. `fmware.report.collect` replays the samples with every alternative, and puts all of it into a
   `Report`: plain values, with what follows from them.
3. `fmware.report.charts` says as Vega-Lite specifications what is to be drawn, `themes` how it
   looks, and `fmware.report.page` makes one HTML file of it that needs nothing else. The report's
   JSON lies beside it, and the page can be made from it again.
"""

from fmware.report.report import (
    Accuracy,
    Alternative,
    JoinReport,
    Report,
    ReportError,
    Share,
    StatementReport,
    Summary,
    Switch,
)

__all__ = [
    "Accuracy",
    "Alternative",
    "JoinReport",
    "Report",
    "ReportError",
    "Share",
    "StatementReport",
    "Summary",
    "Switch",
]
