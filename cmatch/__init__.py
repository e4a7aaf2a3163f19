"""The operators that match anchors of messages with the local corpus.

The way of the data:

1. `Inputs` are anchors that have a local node, as columns: an id of the caller's, the node's AD
   label, and its SES label under one scheme. `Matches` are the pairs that hold.
2. `CMatch` takes batches of inputs. The index is scanned once for each SES label it has not seen,
   in the caller or, for large ones, by probe threads. What comes are candidates: all nodes that may
   match inputs of that label, and some that do not. A `Policy` may leave labels to AD-only match.
3. `CClean`, inside, joins inputs and candidates of the same label as they come, and lets the pairs
   through that AD labels confirm. What memory has no room for goes to disk. Once the candidates of
   a label are complete, an input of it is one look into an ordered list.
4. `ADMatch` is the other way: it asks the index for every input, by AD label.

5. `Adaptive` runs one of them: `CostModel` weighs them by the `Profile` of a join and by the
   `UnitCosts` of the machine, and what is counted meanwhile may change its mind.

All are an `Operator`: they take batches, never wait, and tell their `Counters`. `cmatch.trace`
shows a small join step by step; `cmatch.errors` draws the tree of errors.
"""

from cmatch.adaptive import Adaptive
from cmatch.admatch import ADMatch
from cmatch.axes import Axis
from cmatch.calibration import calibrate, calibrated
from cmatch.cclean import CClean
from cmatch.cmatch import CMatch
from cmatch.cost import Cost
from cmatch.counters import Counters
from cmatch.errors import (
    GenerationGone,
    MatchError,
    MissingLabels,
    OperatorClosed,
    ProbeFailed,
    SpillFailed,
)
from cmatch.inputs import Inputs, Matches
from cmatch.model import Choice, CostModel, Workload
from cmatch.operator import Operator
from cmatch.profile import Profile
from cmatch.replay import measure
from cmatch.spent import Spent, Switch
from cmatch.units import DEFAULT_UNITS, UnitCosts, load_units, units_of

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
    "GenerationGone",
    "Inputs",
    "MatchError",
    "Matches",
    "MissingLabels",
    "Operator",
    "OperatorClosed",
    "ProbeFailed",
    "Profile",
    "Spent",
    "SpillFailed",
    "Switch",
    "UnitCosts",
    "Workload",
    "calibrate",
    "calibrated",
    "load_units",
    "measure",
    "units_of",
]
