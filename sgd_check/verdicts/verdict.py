"""The one rule that turns the evidence of a comparison into a word, its reasons and a dataset.

A comparison aligns prediction and runs, tests them, and collects numbers and sentences of the tests as evidence: of
times (`times`), of curves (`curves`), of the distance between networks and their mean field (`mean_field`), of
estimates (`recovery`) and of runs on tokens (`sgd_check.tokens.comparison`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr

#: Fewest runs that a test takes.
FEWEST_RUNS = 4
#: "Agree" is said only where an error of this size in the predicted time would have been seen with this probability.
VISIBLE_ERROR, POWER = 0.3, 0.8
MORE_WORK = "use more seeds, a smaller learning rate or more steps"


class Sentences(NamedTuple):
    """What the tests of one comparison say; a sentence is empty where it does not apply.

    `untested` says why nothing could be tested; `difference` is on the largest difference that speaks against theory,
    and `excuse` says that it may have another cause; `lacking` says why theory and runs that do not differ are not
    known to agree, and `agreement` what was tested and which error would have been seen. `remarks` follow.
    """

    difference: str
    lacking: str
    agreement: str
    untested: str = ""
    excuse: str = ""
    remarks: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The tests of one comparison at a `rate` of false alarms: their sentences, and what is stored of them.

    `simulations` are by their place in the tree. `usable` counts the runs that did not blow up. `values` are the
    variables of /comparison, `labels` further arguments of `make_dataset`, and `attributes` those that other kinds of
    evidence do not have.
    """

    problem: Any
    prediction: xr.Dataset
    simulations: Mapping[str, xr.Dataset]
    rate: float
    theory: str
    usable: int
    blown_up: int = 0
    sentences: Sentences
    values: Mapping[str, Any]
    labels: Mapping[str, Any]
    attributes: Mapping[str, Any]


def decide(said: Sentences) -> tuple[str, str]:
    """Return "agree", "disagree" or "undecided", and the reason."""
    if said.untested:
        return "undecided", said.untested
    if said.difference:
        return ("undecided", f"{said.difference} {said.excuse}") if said.excuse else ("disagree", said.difference)
    return ("undecided", said.lacking) if said.lacking else ("agree", said.agreement)


def verdict_tree(evidence: Evidence) -> xr.DataTree:
    """Return the tree of `sgd_check.compare`: prediction, simulations, and the comparison with its verdict."""
    import xarray as xr

    from dynamics.runs import make_dataset

    prediction, blown_up = evidence.prediction, evidence.blown_up
    verdict, reason = decide(evidence.sentences)
    lost = [f"Runs left out because they blew up: {blown_up}."] if blown_up else []
    comparison = make_dataset(
        evidence.values,
        problem=evidence.problem,
        solver={"answer": "comparison", "false_alarm_rate": evidence.rate},
        attributes={
            "answer": "comparison",
            "prediction": str(prediction.attrs.get("answer", "simulation" if "seed" in prediction.dims else "unknown")),
            "verdict": verdict,
            "false_alarm_rate": evidence.rate,
            "reasons": " ".join([reason, *evidence.sentences.remarks, *lost]),
            "theory": evidence.theory,
            "usable_runs": evidence.usable,
            "blown_up_count": blown_up,
            **evidence.attributes,
        },
        **{"title": "Online SGD against prediction", **evidence.labels},
    )
    return xr.DataTree.from_dict({"/prediction": prediction, **evidence.simulations, "/comparison": comparison})


def too_few(usable: int) -> str:
    """Return that fewer runs are usable than a test takes; empty if they are enough."""
    return f"Only {usable} runs are usable; the test needs {FEWEST_RUNS}." if usable < FEWEST_RUNS else ""


def side_of(score: float) -> str:
    """Return on which side of its prediction a quantity lies."""
    return "larger" if score > 0 else "smaller"


def normal_score(distance: float, error: float, freedom: int) -> float:
    """Return the normal score with the tail probability of Student's t = distance/error."""
    if distance == 0.0:
        return 0.0
    if error == 0.0:
        return float(np.copysign(np.inf, distance))
    tail = special.stdtr(freedom, -abs(distance) / error)
    return float(np.copysign(-special.ndtri(tail) if tail > 0 else np.inf, distance))


def two_sided(score: float) -> float:
    """Return the two-sided p-value of a normal score; 1 for 0, inside the band."""
    return float(2.0 * special.ndtr(-abs(score))) if score else 1.0


def reach_in_errors(freedom: float, level: float) -> float:
    """Return the distance, in standard errors, that Student's t at this level sees with probability 0.8."""
    return float(special.stdtrit(freedom, 1.0 - level / 2) + special.stdtrit(freedom, POWER))


def reach_factor(runs: int, level: float) -> float:
    """Return the shift of the mean that a test at this level sees with probability 0.8, in units of the scatter."""
    return reach_in_errors(runs - 1, level) / float(np.sqrt(runs))
