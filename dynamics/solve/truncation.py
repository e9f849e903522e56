"""What the series of a link leaves out: the same problem with its links cut at half of their order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.runs.looser_run import LEAST

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.problem import Problem
    from dynamics.solve.skeleton import Method
    from hermite import HermiteExpansion
    from hermite.arrays import Array

__all__ = ["CutLink", "halved"]

#: Largest share of a mean that is taken to be left when the order of a link is doubled.
SLOWEST = 0.9


@dataclass(frozen=True, slots=True)
class CutLink:
    """A flow of a link cut at a lower order, which tells what cutting its series costs."""

    method: Method
    #: State -> E(f − f*)².
    loss: Callable[[Array], float]
    #: What the answer changes by is this many times what lowering the order does.
    factor: float


def halved(problem: Problem, rtol: float) -> tuple[Problem, float] | None:
    """Return the problem with links of half their order, and the factor from its distance to the error of the whole.

    Means that a flow needs leave out tails of Σ c_j² and of Σ j c_j², or of the products of student's and teacher's
    coefficients, which are no larger than both. If they fall like powers of the order J, the share of the latter that
    is left from J/2 to J is ρ = 2 tail(J)/tail(J/2), of which the error is ρ/(1 − ρ) times the change. ρ near 1 would
    say that g'(1) has no limit; it counts as `SLOWEST` at most. Return None where what the series leave out cannot be
    seen.
    """
    links = {name: getattr(problem, name) for name in ("activation", "teacher_activation")}
    cut = {name: link for name, link in links.items() if link is not None and _is_seen(link, rtol)}
    halves: dict[str, Any] = {
        name: replace(link, coefficients=link.coefficients[: link.order // 2 + 1]) for name, link in cut.items()
    }
    if not halves or not all(np.any(np.abs(half.coefficients[1:]) > half.tolerance) for half in halves.values()):
        return None
    shares = [2.0 * (cut[name].truncation_error / half.truncation_error) ** 2 for name, half in halves.items()]
    share = min(max(shares), SLOWEST)
    order = {"order": halves["activation"].order} if "activation" in halves else {}
    return replace(problem, **halves, **order), share / (1.0 - share)


def _is_seen(link: HermiteExpansion, rtol: float) -> bool:
    """Return whether what a series leaves out exceeds the least error of integration that is told."""
    return bool(link.order * link.truncation_error**2 > LEAST * rtol * link.norm_squared)
