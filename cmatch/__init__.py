"""The operators that match anchors of messages with the local corpus.

The way of the data:

1. `Inputs` are anchors that have a local node, as columns: an id of the caller's, the node's AD
   label, and its SES label under one scheme. `Matches` are the pairs that hold.
2. `CMatch` takes batches of inputs. The index is scanned once for each SES label it has not seen,
   in the caller or, for large ones, by probe threads. What comes are candidates: all nodes that may
   match inputs of that label, and some that do not. With a `Rent`, the first inputs of a label go
   to ADMatch, until that has cost as much as the scan.
3. `CClean`, inside, joins inputs and candidates of the same label as they come, and lets the pairs
   through that AD labels confirm. What memory has no room for goes to disk. Once the candidates of
   a label are complete, an input of it is one look into an ordered list.
4. `ADMatch` is the other way: it asks the index for every input, by AD label.

5. `Adaptive` runs one of them. `CostModel` estimates what each would cost, from the `Figures` that
   the index has of a join and the `UnitCosts` of the machine. When the number of inputs has doubled
   it is looked at again, by what was counted meanwhile.

All are an `Operator`: they take batches, never wait, and tell their `Counters`. The module `trace`
shows a small join step by step; `errors` draws the tree of errors.
"""

from fmware.cmatch.adaptive import Adaptive, Look
from fmware.cmatch.admatch import ADMatch
from fmware.cmatch.axes import Axis
from fmware.cmatch.calibration import calibrate, calibrated
from fmware.cmatch.cclean import CClean
from fmware.cmatch.choice import Choice, Cost, CostModel, Workload
from fmware.cmatch.cmatch import CMatch
from fmware.cmatch.counters import Counters
from fmware.cmatch.errors import (
    GenerationGone,
    MatchError,
    MissingLabels,
    OperatorClosed,
    ProbeFailed,
    SpillFailed,
)
from fmware.cmatch.figures import Figures
from fmware.cmatch.inputs import Inputs, Matches
from fmware.cmatch.operator import Operator
from fmware.cmatch.rent import Rent
from fmware.cmatch.replay import measure
from fmware.cmatch.units import DEFAULT_UNITS, UnitCosts, load_units, units_of

__all__ = [
    "DEFAULT_UNITS",
    "ADMatch",
    "Adaptive",
    "Axis",
    "CClean",
    "CMatch",
    "Choice",
    "Cost",
    "CostModel",
    "Counters",
    "Figures",
    "GenerationGone",
    "Inputs",
    "Look",
    "MatchError",
    "Matches",
    "MissingLabels",
    "Operator",
    "OperatorClosed",
    "ProbeFailed",
    "Rent",
    "SpillFailed",
    "UnitCosts",
    "Workload",
    "calibrate",
    "calibrated",
    "load_units",
    "measure",
    "units_of",
]
