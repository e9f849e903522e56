"""The one rule that turns the evidence of a comparison into a word, its reasons and a dataset.

A comparison aligns prediction and runs, tests them, and collects the tests as evidence. There are four kinds: of times
(`times`), of curves (`curves`), of the distance between networks and their mean field (`mean_field`), and of estimates
(`recovery`). All of them answer the same questions of the rule.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr

    from dynamics.problem import Problem

#: Fewest runs that a test takes.
FEWEST_RUNS = 4
#: "Agree" is said only where an error of this size in the predicted time would have been seen with this probability.
VISIBLE_ERROR, POWER = 0.3, 0.8
MORE_WORK = "use more seeds, a smaller learning rate or more steps"


@dataclass(frozen=True, kw_only=True)
class Evidence(ABC):
    """The tests of one comparison.

    `p_value` is that of everything that enters the verdict, and `rate` the rate of false alarms. `usable` counts the
    runs that did not blow up.
    """

    title: ClassVar[str] = "Online SGD against prediction"
    #: Leading dims of the stored variables, and the names of variables that have them though they usually do not.
    leading: ClassVar[tuple[str, ...]] = ()
    with_leading: ClassVar[tuple[str, ...]] = ()

    problem: Problem
    prediction: xr.Dataset
    simulations: Sequence[xr.Dataset]
    rate: float
    theory: str
    p_value: float
    usable: int
    blown_up: int

    @property
    def refutable(self) -> bool:
        """Whether a difference speaks against theory."""
        return True

    def untested(self) -> str:
        """Return why nothing could be tested; empty if something was."""
        return ""

    def excuse(self) -> str:
        """Return why a difference may have another cause than an error of theory; empty if it has none."""
        return ""

    @abstractmethod
    def difference(self) -> str:
        """Return the sentence on the largest difference."""

    @abstractmethod
    def lacking(self) -> str:
        """Return why theory and runs that do not differ are not known to agree; empty if they are."""

    @abstractmethod
    def agreement(self) -> str:
        """Return the sentence on the tests and the error that they would have seen."""

    def remarks(self) -> list[str]:
        """Return the sentences that follow the reason of the verdict."""
        return []

    @abstractmethod
    def variables(self) -> dict[str, Any]:
        """Return the variables of /comparison."""

    def coords(self) -> dict[str, Any]:
        """Return the coordinates of /comparison."""
        return {}

    def attributes(self) -> dict[str, Any]:
        """Return attributes of /comparison that other kinds of evidence do not have."""
        return {}

    def branches(self) -> dict[str, xr.Dataset]:
        """Return the simulations by their place in the tree."""
        return {"/simulation": self.simulations[0]}


def decide(evidence: Evidence) -> tuple[str, str]:
    """Return "agree", "disagree" or "undecided", and the reasons."""
    word, reason = _word(evidence)
    blown_up = [f"Runs left out because they blew up: {evidence.blown_up}."] if evidence.blown_up else []
    return word, " ".join([reason, *evidence.remarks(), *blown_up])


def _word(evidence: Evidence) -> tuple[str, str]:
    if untested := evidence.untested():
        return "undecided", untested
    if evidence.p_value < evidence.rate and evidence.refutable:
        if excuse := evidence.excuse():
            return "undecided", f"{evidence.difference()} {excuse}"
        return "disagree", evidence.difference()
    if lacking := evidence.lacking():
        return "undecided", lacking
    return "agree", evidence.agreement()


def verdict_tree(evidence: Evidence) -> xr.DataTree:
    """Return the tree of `sgd_check.compare`: prediction, simulations, and the comparison with its verdict."""
    import xarray as xr

    from dynamics.runs import make_dataset

    prediction = evidence.prediction
    verdict, reasons = decide(evidence)
    comparison = make_dataset(
        evidence.variables(),
        problem=evidence.problem,
        title=evidence.title,
        coords=evidence.coords(),
        solver={"answer": "comparison", "false_alarm_rate": evidence.rate},
        attributes={
            "answer": "comparison",
            "prediction": str(prediction.attrs.get("answer", "simulation" if "seed" in prediction.dims else "unknown")),
            "verdict": verdict,
            "false_alarm_rate": evidence.rate,
            "reasons": reasons,
            "theory": evidence.theory,
            "usable_runs": evidence.usable,
            "blown_up_count": evidence.blown_up,
            **evidence.attributes(),
        },
        leading=evidence.leading,
        with_leading=evidence.with_leading,
    )
    return xr.DataTree.from_dict({"/prediction": prediction, **evidence.branches(), "/comparison": comparison})


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


def reach_factor(runs: int, level: float) -> float:
    """Return the shift of the mean that a test at this level sees with probability 0.8, in units of the scatter."""
    quantiles = special.stdtrit(runs - 1, 1.0 - level / 2) + special.stdtrit(runs - 1, POWER)
    return float(quantiles / np.sqrt(runs))
