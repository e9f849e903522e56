r"""Losses ℓ(f, y) of an output and its label, and labels of classes.

The output f of a network and its label y are dimensionless. With u = f y of labels y = ±1, and e = f − y,

.. math:: \text{squared } \tfrac12 e^2, \quad \text{correlation } -yf, \quad \text{logistic } \ln(1 + e^{-u}), \quad
   \text{exponential } e^{-u}, \quad \text{huber } \tfrac12 e^2 \text{ or } |e| - \tfrac12 \text{ where } |e| > 1,

the smooth hinge is 0 for u ≥ 1, ½(1 − u)² for 0 < u < 1 and ½ − u for u ≤ 0. Softmax has an output f_k per class k, and
is −ln p_y of the class y, p_k = exp(f_k)/Σ_l exp(f_l).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

from dynamics.problem.checks import Frozen, JsonObject, check_choice, checked_number, checked_real, read_only, require
from dynamics.problem.question import Compared
from hermite.arrays import Array, real_array
from hermite.expansion import callable_name
from hermite.piecewise import TABLE_END, has_kink, pieces_of, value_and_slope
from hermite.text.messages import refuse, shown

if TYPE_CHECKING:
    from dynamics.problem.mixture import Mixture
    from dynamics.problem.teacher import Teacher
    from hermite import HermiteExpansion

#: The functions that a problem may descend.
SQUARED, CORRELATION, LOGISTIC, HINGE, HUBER = "squared", "correlation", "logistic", "hinge", "huber"
EXPONENTIAL, SOFTMAX = "exponential", "softmax"
OBJECTIVES = (SQUARED, CORRELATION, LOGISTIC, HINGE, HUBER, EXPONENTIAL, SOFTMAX)
#: Losses of u = f y, whose labels must be ±1.
OF_MARGINS = (LOGISTIC, HINGE, EXPONENTIAL)
#: Labels: f* with noise, its sign, ±1 or a class drawn by its sigmoid or softmax, or that of a cluster.
VALUE, SIGN, BERNOULLI, OF_SOFTMAX, CLUSTER = "value", "sign", "bernoulli", "softmax", "cluster"
LABELS = (VALUE, SIGN, BERNOULLI, OF_SOFTMAX, CLUSTER)
#: Most classes of a softmax.
MOST_CLASSES = 10


class OwnLoss(Compared, Frozen):
    """A loss that a user wrote, as polynomials in f on equal pieces for the labels −1 and +1; frozen.

    Two are equal where their pieces are. A file stores the pieces, since it holds no code.
    """

    __slots__ = ("kinks", "name", "table")

    name: str
    #: Powers of each piece for y = −1 and for y = 1, (2, pieces, powers), see `hermite.piecewise.pieces_of`.
    table: Array
    #: Whether ℓ or its slope jumps.
    kinks: bool

    @classmethod
    def of(cls, function: Callable[..., object]) -> OwnLoss:
        """Return the loss of a function of arrays f, y of one shape that returns ℓ in this shape.

        TypeError is raised where it returns another shape, ValueError where ℓ is not finite for f in [−32, 32].
        """
        name = callable_name(function)

        def at(label: float) -> Callable[[Array], Array]:
            def values(f: Array) -> Array:
                try:
                    with np.errstate(all="ignore"):
                        result = real_array(function(f, np.full_like(f, label)), "objective")
                except Exception as error:
                    refuse(
                        f"Argument `objective` must take arrays of outputs and of labels, and return real numbers, but "
                        f"{name!r} failed: {error}",
                        error=TypeError,
                        cause=error,
                    )
                require(
                    result.shape == f.shape,
                    f"Argument `objective` must return one number for each output, but {name!r} returns shape "
                    f"{result.shape} for shape {f.shape}.",
                    TypeError,
                )
                return result

            return values

        tables = [pieces_of(at(label)) for label in (-1.0, 1.0)]
        require(
            all(np.isfinite(table).all() for table in tables),
            f"Argument `objective` must be finite for outputs in [{-TABLE_END:g}, {TABLE_END:g}], but {name!r} is not.",
        )
        kinks = any(has_kink(at(label), table) for label, table in zip((-1.0, 1.0), tables, strict=True))
        return cls.stored(name, np.array(tables), kinks=kinks)

    @classmethod
    def stored(cls, name: str, table: Array, *, kinks: bool) -> OwnLoss:
        """Return the loss with the name, the pieces `table` and the `kinks` that a file holds."""
        loss = cls()
        loss._set(name=name, table=read_only(table), kinks=bool(kinks))
        return loss

    def value_and_slope(self, f: Array, y: Array) -> tuple[Array, Array]:
        """Return ℓ and ∂ℓ/∂f at outputs and labels ±1 of one shape."""
        below, above = (value_and_slope(table, f) for table in self.table)
        return np.where(y > 0.0, above[0], below[0]), np.where(y > 0.0, above[1], below[1])

    def _identity(self) -> object:
        return self.table.tobytes()

    def __repr__(self) -> str:
        return self.name


Objective = str | OwnLoss


class Labelled(Protocol):
    """The fields of `Problem` that say how its labels arise and which loss compares outputs with them."""

    @property
    def kind(self) -> str:
        """Name of the student's equations, "network" for those of a `Student`."""

    @property
    def mixture(self) -> Mixture | None:
        """Inputs that are a mixture of clusters, None for Gaussian inputs."""

    @property
    def teacher_link(self) -> HermiteExpansion:
        """Link of the teacher's units that name none."""

    @property
    def teacher(self) -> Teacher:
        """The function f*, or its units, from which labels arise."""

    @property
    def objective(self) -> Objective:
        """The loss ℓ(f, y)."""

    @property
    def labels(self) -> str:
        """A name of `LABELS`, before `check_labels` any value that a user passed."""

    @property
    def flip(self) -> float:
        """Probability that a class is replaced by another one."""

    @property
    def threshold(self) -> float:
        """Level that f* is compared with, dimensionless."""

    @property
    def label_noise(self) -> float:
        """Standard deviation of the noise of labels that are values, dimensionless."""


def checked_objective(value: object) -> Objective:
    """Return the loss that a user chose by its name in `OBJECTIVES` or as a function of (f, y).

    ValueError or TypeError is raised for any other value, and for a function that is no loss, see `OwnLoss.of`.
    """
    if isinstance(value, OwnLoss):
        return value
    if callable(value):
        return OwnLoss.of(value)
    check_choice("objective", value, OBJECTIVES)
    return str(value)


def loss_and_slope(objective: Objective, f: Array, y: Array) -> tuple[Array, Array]:  # noqa: PLR0911 (one each)
    """Return ℓ(f, y) and ∂ℓ/∂f at outputs and labels of one shape, for every loss but softmax."""
    if isinstance(objective, OwnLoss):
        return objective.value_and_slope(f, y)
    error, u = f - y, f * y
    if objective == SQUARED:
        return 0.5 * error**2, error
    if objective == CORRELATION:
        return -u, -y * np.ones_like(f)
    if objective == HUBER:
        return np.where(np.abs(error) <= 1.0, 0.5 * error**2, np.abs(error) - 0.5), np.clip(error, -1.0, 1.0)
    if objective == LOGISTIC:
        return np.logaddexp(0.0, -u), -y * np.exp(-np.logaddexp(0.0, u))
    if objective == EXPONENTIAL:
        return np.exp(-u), -y * np.exp(-u)
    inside = np.clip(1.0 - u, 0.0, 1.0)  # the smooth hinge
    return np.where(u < 0.0, 0.5 - u, 0.5 * inside**2), -y * inside


def needs_points(problem: Labelled) -> bool:
    """Return whether the means of a network need points: another loss, labels that are classes, or a mixture."""
    has_labels = (problem.labels, problem.objective) != (VALUE, SQUARED)
    return problem.kind == "network" and (has_labels or problem.mixture is not None)


def number_of_classes(problem: Labelled) -> int:
    """Return the number C of outputs: that of classes under softmax, and 1 under any other loss."""
    if problem.objective != SOFTMAX:
        return 1
    if problem.labels == CLUSTER and problem.mixture is not None:
        return problem.mixture.num_classes
    return len(problem.teacher.units(problem.teacher_link))


def check_labels(problem: Labelled) -> tuple[str, float, float]:
    """Return labels, share of flips and threshold; raise ValueError if student, loss and labels do not fit together."""
    mixture, chosen, objective = problem.mixture, cast("object", problem.labels), problem.objective
    if chosen is None:
        chosen = CLUSTER if mixture is not None and mixture.labels is not None else VALUE
    check_choice("labels", chosen, LABELS)
    labels = str(chosen)
    flip = checked_number(problem.flip, "flip", positive=False)
    require(flip <= 0.5, f"Argument `flip` must be at most 0.5, but is {flip:g}.")
    threshold = checked_real(problem.threshold, "threshold")
    require(np.isfinite(threshold), f"Argument `threshold` must be finite, but is {threshold}.")
    is_network = problem.kind == "network"
    taken = (SQUARED, CORRELATION) if problem.kind == "spherical" else (SQUARED,)
    require(
        is_network or objective in taken,
        f"Argument `objective` must be {' or '.join(map(repr, taken))} for the {problem.kind} student, but is "
        f"{shown(objective)}.",
    )
    require(
        is_network or labels == VALUE,
        f"Argument `labels` must be 'value' for the {problem.kind} student, but is {shown(labels)}; a `Student` learns "
        "classes.",
    )
    for name, number, takers in (
        ("flip", flip, (SIGN, BERNOULLI, OF_SOFTMAX, CLUSTER)), ("threshold", threshold, (SIGN, BERNOULLI)),
    ):  # fmt: skip
        require(
            number == 0.0 or labels in takers,
            f"Argument `{name}` must be 0 for labels {labels!r}, but is {number:g}.",
        )
    require(
        problem.label_noise == 0.0 or labels == VALUE,
        f"Argument `label_noise` must be 0 for labels {labels!r}, but is {shown(problem.label_noise)}; `flip` is noise "
        "of classes.",
    )
    require(
        labels != CLUSTER or (mixture is not None and mixture.labels is not None),
        "Argument `labels` must be those of clusters only where `inputs` is a Mixture with labels, but is 'cluster'.",
    )
    of_classes = labels == OF_SOFTMAX or (labels == CLUSTER and mixture is not None and not mixture.has_signs)
    require(
        objective == SOFTMAX or not of_classes,
        "Argument `objective` must be 'softmax' for labels that are classes 0 to C − 1, but is "
        f"{shown(objective)} for labels {labels!r}.",
    )
    require(
        objective != SOFTMAX or of_classes,
        "Argument `labels` must be classes 0 to C − 1 for the objective 'softmax', but "
        f"{labels!r} are {'values' if labels == VALUE else '−1 and 1'} here.",
    )
    require(
        objective not in OF_MARGINS or labels != VALUE,
        f"Argument `labels` must be ±1 for the objective {objective!r}, 'sign', 'bernoulli' or those of clusters, but "
        f"is {labels!r}.",
    )
    require(
        not isinstance(objective, OwnLoss) or labels != VALUE,
        f"Argument `labels` must be ±1 for an objective of one's own, which is tabulated for both, but is {labels!r}.",
    )
    return labels, flip, threshold


def check_classes(problem: Labelled) -> None:
    """Raise ValueError unless a softmax has 2 to 10 classes, each a unit of the teacher or a label of clusters."""
    if problem.objective != SOFTMAX:
        return
    require(
        problem.labels == CLUSTER or not problem.teacher.is_polynomial,
        "Argument `teacher` must have a unit for each class of labels 'softmax', but is a polynomial.",
    )
    count = number_of_classes(problem)
    require(
        2 <= count <= MOST_CLASSES,
        f"Argument `labels` must have 2 to {MOST_CLASSES} classes for the objective 'softmax', but has {count}.",
    )


def stored_objective(objective: Objective) -> object:
    """Return a loss as a JSON-ready value; the pieces of one's own are an array."""
    return objective if isinstance(objective, str) else {"own": objective.name, "kinks": objective.kinks}


def read_objective(stored: str | JsonObject, table: Array | None) -> Objective:
    """Return the loss that `stored_objective` stored, of a user's with its pieces `table` (2, pieces, powers)."""
    if isinstance(stored, str):
        return stored
    if table is None:
        refuse("Argument `dataset` must hold the pieces of its own loss, but lacks them.")
    return OwnLoss.stored(stored["own"], table, kinks=stored["kinks"])
