"""The quadratic network at any width and dimension, by exact jumps; the last one ends at the last saved time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Unpack

import numpy as np
from numpy.typing import NDArray

from dynamics.commands.options import Values
from dynamics.cores import blas_threads_for
from dynamics.equations.quadratic import LARGEST_GROWTH, Course, jumps_needed
from dynamics.integrators.stepper import Status, check_inside, check_stored
from dynamics.problem import Problem, is_frame
from dynamics.problem.checks import check_memory
from dynamics.problem.emergence import ALL_DEGREES
from dynamics.problem.saved_times import DEFAULT_COUNT, SaveAt
from dynamics.solve.arguments import TimedArguments, integrated
from dynamics.solve.integration import AnswerCall, Integration, integrate
from dynamics.theory import quadratic as theory
from dynamics.theory.learning_rates import learning_rate_limit
from dynamics.theory.quadratic import check_quadratic
from hermite.arrays import Array

if TYPE_CHECKING:
    import xarray as xr

    from dynamics.integrators import Stepper


class JumpStepper:
    """A quadratic network on its way; `state` is that of before a jump while one is taken in another thread."""

    name = "jumps"

    def __init__(self, problem: Problem) -> None:
        self._course = Course.of(problem)
        self._jumps = 0
        #: A_j at time 0, shape (P,).
        self.initial_alignment = self._course.alignment

    def stepper(self, _rtol: float) -> Stepper:
        """Return the stepper itself."""
        return self

    def attributes(self, _stepper: Stepper) -> dict[str, object]:
        """Return an empty dict: this answer has one method alone, so a dataset need not name it."""
        return {}

    @property
    def time(self) -> float:
        """Flow time at the end of the last jump."""
        return self._course.time

    @property
    def event_times(self) -> Array:
        """Times (2 P,) at which the P directions were aligned, then those at which they were learned, or NaN."""
        return np.concatenate(self._course.reached)

    def advance(self, target: float, max_steps: int) -> Status:
        """Take exact jumps until the time `target` is reached, or `max_steps` of them.

        Return which of the two ended the call.
        """
        last = self._jumps + max_steps
        while self.time < target and self._jumps < last:
            self._course, self._jumps = self._course.towards(target), self._jumps + 1
        return Status.REACHED if self.time >= target else Status.MAX_STEPS

    def interpolate(self, t: float, out: Array | None = None) -> Array:  # noqa: ARG002
        """Return the state, the matrices U and V of the motion in one flat array.

        `t` must be the end of the last jump.
        """
        check_inside(t, self.time, self.time)
        return self._course.numbers()

    def derivative(self, t: float) -> Array:
        """Return the velocity of `interpolate`, up to a rotation of the neurons."""
        check_inside(t, self.time, self.time)
        return self._course.velocity()

    def observe(self, numbers: Array) -> Mapping[str, object]:
        """Return the observables of a state, by name; `numbers` is a flat array as `interpolate` returns it."""
        return self._course.standing(numbers).record()

    def statistics(self) -> dict[str, int]:
        """Return the number of jumps so far, as "steps_accepted"."""
        return {"steps_accepted": self._jumps}

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return copies of all arrays from which `restore` continues bit for bit."""
        course, jumps = self._course, np.array(self._jumps)
        reached, time = np.array(course.reached), np.array(course.time)
        return {"numbers": course.numbers(), "reached": reached, "time": time, "jumps": jumps}

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from the arrays that `state` returned."""
        for name, array in self.state().items():
            check_stored(state, name, array.shape)
        self._jumps = int(state["jumps"])
        self._course = self._course.standing(
            np.asarray(state["numbers"], dtype=np.float64),
            time=float(state["time"]),
            reached=np.asarray(state["reached"], dtype=np.float64),
        )


#: The default saved times end at this multiple of the last alignment that is expected, and after at most so many jumps.
LAST_ALIGNED_FACTOR, DEFAULT_JUMPS = 2.5, 1e5
#: Arrays of the size of the reduced weights, and of all alignments that are saved, which are held at once.
ARRAYS_OF_MOTION, ARRAYS_OF_RECORDS = 12, 4
NOTE_ROTATIONS = "a rotation of the neurons changes nothing: only their span and Q = W^T W are known, no single neuron"


@integrated("quadratic", TimedArguments)
def solve_quadratic(problem: Problem, **shared: Unpack[TimedArguments]) -> xr.Dataset:
    r"""Solve a quadratic network exactly, without time stepping, at any dimension.

    .. math:: f(x) = \sum_i |w_i|^2 h_2(u_i\cdot x) = \tfrac{1}{\sqrt2} \langle Q, xx^T - I\rangle, \quad Q = W^T W,
       \qquad W' = 2 W (A - Q), \qquad L = |Q - A|_F^2, \quad A = \sum_j a_j \theta_j\theta_j^T

    Directions do not decouple, and single neurons mean nothing: what is followed is the span of the neurons, with the
    orthonormal basis U, and Q. The alignment A_j = (UUᵀ)_jj of a direction with the span of e^{2tA} Wᵀ(0) is the same
    whatever the norms; of a frame of orthogonal neurons of one length σ0 (``student="stiefel"``), U' = 2(I − UUᵀ)AU, it
    tells all: with n = σ0²

    .. math:: L = n^2 m - 2 n \sum_j a_j A_j + \sum_j a_j^2 .

    Parameters
    ----------
    problem : Problem
        With the link "he2" and an orthonormal teacher, homogeneous or ``student="stiefel"``. The usual start has
        `initial_norm` m^(−1/4), of which n²m = 1.
    save_at : SaveAt, optional
        Saved times. Default: 150 geometric times from a tenth of ln(d/m)/(4 a_1) to 2.5 times ln(d/m)/(4 a_m).

    Returns
    -------
    Dataset
        `loss(time)`, E(f − f*)²; `alignment(time, direction)`, A_j; `fine_tuned_loss(time)`, Σa² − |UᵀAU|², the least
        loss over second layers on the span. Per direction `aligned_time`, first A_j ≥ `emergence_level`, and
        `learned_time`, first θ_jᵀQθ_j ≥ a_j/2 (NaN if not by the last saved time, 0 if the start is there; the matrix Q
        is all that the network learns, so that the degree 2 of the link counts here), beside the predictions from
        A_j(0) alone: `predicted_aligned_time`, ln((1 − A_j)/A_j)/(4a_j) to ½, and `predicted_learned_time`, the fixed
        point of 4a_j t = ln[(a_j/n)(1 + 4nt)/A_j], which are inf beyond the m strongest. `sigmoid_loss(time)` is
        Σ a_j²(1 − A_j) with every A_j growing alone, `staircase_loss(time)` the sum over directions that are not yet
        aligned by prediction. A frame has per direction `rate_limit`, η*_j of SGD, and `fewest_steps`, at η*_j/2; the
        attribute `learning_rate_limit` is the largest of them, and else that of `learning_rate_limit`. Dimensionless.

    Notes
    -----
    A tracker is given U and V = Wᵀ as one array, of a frame U alone. Between saved times the exact solution is taken in
    jumps of 4 h a_1 ≤ 12, at a cost of (r + m) m² each: 1.5 s for r = 1024, m = 64, d = 10^9 and 48 times to 2.5 times
    the last alignment. Times at which directions are reached are roots of the exact solution, right to 1e-12 of a jump,
    for all saved times; more than 10^6 jumps are refused. Losses have rounding errors of 1e-15 Σa². The time of
    arXiv:2508.03688 is 4√m t.

    Examples
    --------
    >>> from dynamics import Problem, Teacher
    >>> problem = Problem(activation="he2", teacher=Teacher([1.0, 0.5]), width=2, dimension=1000)
    >>> found = solve_quadratic(problem, progress=False)
    >>> found.aligned_time.values.round(2).tolist(), found.predicted_aligned_time.values.round(2).tolist()
    ([1.95, 5.36], [1.95, 5.25])
    """
    check_quadratic(problem)
    return integrate("quadratic", quadratic_integration, problem, shared)


def quadratic_integration(run: AnswerCall) -> Integration:
    """Return the exact solution of a quadratic network (link h_2) as an integration, with the predictions of theory.

    Its constants are the losses of the sigmoid and of the staircase formula (times,), and predicted times (P,).
    """
    problem, a, P = run.problem, run.problem.teacher.coefficients, run.problem.num_directions
    saved_times = run.saved_times(lambda: default_quadratic_times(problem))
    jumps_needed(saved_times.times, float(a.max()))
    check_quadratic_memory(problem, len(saved_times))
    stepper = JumpStepper(problem)
    start = stepper.initial_alignment
    prediction = theory.predict_quadratic(problem, start)
    constants = {
        "sigmoid_loss": theory.sigmoid_loss(a, problem.width, start, saved_times.times),
        "staircase_loss": theory.staircase_loss(a, prediction.aligned_time, saved_times.times),
        "predicted_aligned_time": prediction.aligned_time,
        "predicted_learned_time": prediction.learned_time,
    }
    if is_frame(problem):
        constants |= {"rate_limit": theory.rate_limits(problem), "fewest_steps": theory.steps_to_align(problem)}
    attributes_of_problem = {
        "learned_definition": ALL_DEGREES,
        "learning_rate_limit": learning_rate_limit(problem),
        "unlearned_loss": float(np.sum(a[~theory.strongest(a, problem.width)] ** 2)),
        "scaling_notes": theory.quadratic_exponents(problem.teacher.beta).note,
    }
    return Integration(
        title="Quadratic network, exactly" + (" on orthonormal frames" if is_frame(problem) else ""),
        saved_times=saved_times,
        method=stepper,
        observe=stepper.observe,
        start=stepper.interpolate(0.0),
        events={"aligned_time": P, "learned_time": P},
        constants=constants,
        attributes=lambda _: attributes_of_problem,
        notes=[NOTE_ROTATIONS],
        threads=lambda: blas_threads_for(problem.width),
    )


def quadratic_numbers(problem: Problem, times: int) -> tuple[float, float]:
    """Return approximate counts of numbers in memory: of the motion, and of the records at `times` times."""
    m, count = problem.width, problem.num_directions
    return float(ARRAYS_OF_MOTION * m * (count + m)), float(ARRAYS_OF_RECORDS * times * count)


def check_quadratic_memory(problem: Problem, times: int) -> None:
    """Raise ValueError if a quadratic network does not fit into memory, by its width or by the times to be saved."""
    motion, records = quadratic_numbers(problem, times)
    name, value = ("width", problem.width) if motion > records else ("save_at", times)
    check_memory(name, value, motion + records)


def check(problem: Problem, options: Values) -> None:
    """Refuse a link other than h_2, and a network beyond the memory."""
    check_quadratic(problem)
    check_quadratic_memory(problem, options["save"][1])


def default_quadratic_times(problem: Problem) -> SaveAt:
    """Return the default saved times, from a tenth of the strongest direction's time to past that of the last.

    They are geometric. The time of a direction of coefficient a is max(ln(d/m), 1)/(4 a) for d dimensions and m
    neurons. The last time is cut where more than `DEFAULT_JUMPS` jumps would be taken.
    """
    a = np.sort(problem.teacher.coefficients)[::-1]
    wait = max(np.log(problem.dimension / problem.width), 1.0) / 4.0
    first, last = 0.1 * wait / a[0], LAST_ALIGNED_FACTOR * wait / a[min(problem.width, a.size) - 1]
    return SaveAt.geometric(first, min(last, DEFAULT_JUMPS * LARGEST_GROWTH / (4.0 * a[0])), DEFAULT_COUNT)
