"""Factual recall by linear attention, reduced to six numbers (`docs/token_equations.md`).

State y = [k_r, x, y, k_s, u, w]; parameters are `RecallNumbers`, sizes = [whether the relation is first, stage].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special

from dynamics.equations.interface import Functions
from dynamics.kernels.jit import kernel, vector
from dynamics.tokens.problems import FactualRecall
from dynamics.tokens.system import TokenSystem, put_softmax
from hermite.arrays import Array, Integers, Vector


class RecallNumbers(NamedTuple):
    """Numbers of relations R, of subjects S, and of answers D per relation."""

    relations: float
    subjects: float
    answers: float


@kernel
def numbers_of(parameters: Vector) -> RecallNumbers:
    """Return the numbers of relations R, of subjects S, and of answers D per relation."""
    return RecallNumbers(parameters[0], parameters[1], parameters[2])


@kernel
def is_relation_first(sizes: Integers) -> bool:
    """Return whether the relation is learned before the subject."""
    return bool(sizes[0] == 1)


@kernel
def write_classes(y: Vector, parameters: Vector, work: Vector) -> Vector:
    """Write and return four probabilities: of the right answer, and of the three kinds of wrong answers in all.

    These are: right relation and wrong subject, wrong relation and right subject, both wrong.
    """
    (R, _, D), shares = numbers_of(parameters), vector(work, 0, 4)
    for at in range(4):
        right_relation, right_subject = at < 2, at % 2 == 0
        count = (1.0 if right_relation else R - 1.0) * (1.0 if right_subject else D - 1.0)
        score = y[0] * (y[1] if right_relation else y[2]) + y[3] * (y[4] if right_subject else y[5])
        shares[at] = score + np.log(count)
    put_softmax(shares, 0, 4)
    return shares


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the rates of the six numbers [k_r, x, y, k_s, u, w] under gradient descent to `out`.

    k_r is the key of the relation, x and y its values for answers to this relation and to others; k_s, u and w are
    those of the subject. An answer has the score k_r (x or y) + k_s (u or w).
    """
    R, S, D = numbers_of(parameters)
    A, shares = R * D, write_classes(y, parameters, work)
    # The values of the relation move by the probability of answers to other relations, and the subject's likewise.
    gx, gu = (shares[2] + shares[3]) / D, (shares[1] + shares[3]) / R
    gy, gw = -gx / (R - 1.0), -gu / (D - 1.0)
    out[0] = (D * y[1] * gx + (A - D) * y[2] * gy) / R
    out[1] = y[0] * gx / R
    out[2] = y[0] * gy / R
    out[3] = (R * y[4] * gu + (A - R) * y[5] * gw) / S
    out[4] = y[3] * gu / S
    out[5] = y[3] * gw / S


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the loss at which relation and subject are half learned, minus the loss.

    The first to be learned is so halfway from the start to the plateau, the other at half of the plateau.
    """
    (R, _, D), is_first = numbers_of(parameters), is_relation_first(sizes)
    A, left = R * D, D if is_first else R
    loss = -np.log(write_classes(y, parameters, work)[0])
    first, second = 0.5 * (np.log(A) + np.log(left)) - loss, 0.5 * np.log(left) - loss
    out[0], out[1] = (first, second) if is_first else (second, first)


class RecallSystem(TokenSystem):
    """State, kernels, observables and closed forms of factual recall."""

    name = "recall"
    functions = Functions(rhs, event_values)
    references = "arXiv:2412.06538"
    geometric = True

    def __init__(self, problem: FactualRecall) -> None:
        """Prepare the equations of factual recall, from equal values."""
        self.task = problem
        R, S, D, scale = problem.relations, problem.subjects, problem.answers, problem.initial_scale
        key = scale * np.sqrt(R * D + 1.0)
        self.components = ["relation", "subject"]
        self.hold([key, scale, scale, key, scale, scale], RecallNumbers(R, S, D), [problem.relation_first], work_size=4)
        self.numbers = ["relation key", "own", "other", "subject key", "own of subject", "other of subject"]
        self._left = float(np.log(D if problem.relation_first else R))
        first, second = np.sort(self.closed_times())
        self.time_scale = float(first)
        overlap = "the two stages overlap, so that closed times are off by 10 % and more"
        self.notes = (
            "Exact for full gradient descent on balanced tables from equal values; on unbalanced tables the relation's "
            "time is 0.90 to 0.97 times as long, from Gaussian values 0.97 to 1.05 times (R = 4, S = 32, D = 4)",
            *([overlap] if second < 1.5 * first else []),
        )

    def loss(self, state: Array) -> float:
        """Return the loss, −ln of the probability of the right answer."""
        R, D = self.task.relations, self.task.answers
        kr, x, y, ks, u, w = state
        logits = np.array([kr * x + ks * u, kr * x + ks * w, kr * y + ks * u, kr * y + ks * w])
        counts = np.array([1, D - 1, R - 1, (R - 1) * (D - 1)])
        return float(special.logsumexp(logits, b=counts) - logits[0])

    def progress(self, loss: Array) -> Array:
        """Return progress (…, 2) of relation and subject, from 0 to 1, at losses of shape (…).

        That of the first to be learned is 1 on the plateau, that of the other at loss 0.
        """
        total, plateau = np.log(self.task.relations * self.task.answers), self._left
        stages = [(total - loss) / (total - plateau), (plateau - loss) / plateau]
        return np.asarray(np.stack(stages if self.task.relation_first else stages[::-1], axis=-1).clip(0.0, 1.0))

    def learning(self, state: Array) -> tuple[float, Array]:
        """Return the loss, and the progress of relation and subject, (2,), from 0 to 1."""
        loss = self.loss(state)
        return loss, self.progress(np.array(loss))

    def closed_times(self) -> Array:
        """Return the times at which relation and subject, each without the other, are half learned, (2,)."""
        R, S, D = self.task.relations, self.task.subjects, self.task.answers
        return np.array([self._alone(R, D, R), self._alone(D, R, S)])

    def _alone(self, c: int, o: int, scale: int) -> float:
        r"""Return T = scale·b ∫ (e^gap + c − 1)/(c − 1) dθ until the gap is ln(1 + √c), gap = κ² sinh(2θ)/(2b)."""
        from scipy.integrate import quad

        b = np.sqrt(o * (1.0 - 1.0 / c))
        factor = self.task.initial_scale**2 * (self.task.relations * self.task.answers + 1.0) / (2.0 * b)
        end = 0.5 * np.arcsinh(np.log(1.0 + np.sqrt(c)) / factor)
        integral = quad(lambda theta: np.exp(factor * np.sinh(2.0 * theta)) + c - 1.0, 0.0, end, epsabs=0, limit=200)[0]
        return float(scale * b * integral / (c - 1.0))

    def plateaus(self) -> Array:
        """Return the loss before relation and before subject is learned, (2,)."""
        levels = [float(np.log(self.task.relations * self.task.answers)), self._left]
        return np.array(levels if self.task.relation_first else levels[::-1])
