r"""Study of the step size that is tuned to the last wanted direction, η = c a_p̄ d^(−k/2): loss against samples.

T_p̄ ∝ 1/a_p̄, so n = T/η ∝ a_p̄^(−2) d^(k−1), and asymptotically L ∝ n^((1−2β)/(2β)) for a_p ∝ p^(−β).  Theory gives
the curve at a large size, SGD at a small one.  Responsible for both families and their fits.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.commands import study_function
from dynamics.problem import MOST_RUNS, Problem, SaveAt, Teacher, checked_increasing, checked_integer, checked_number
from dynamics.runs import study_dataset
from dynamics.theory import (
    asymptotic_exponents,
    fit_slope,
    inverse_fit,
    learning_rate_limit,
    predict,
    target_losses,
    tuned_rates,
)
from sgd_check.studies.pairs import DEFAULT_NORM, DEFAULT_START, prepared_pairs
from sgd_check.studies.thresholds import first_below
from sgd_check.studies.tuned import theory_curve
from sgd_check.studies.work import Meter, announcement, seconds_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr
    from numpy.typing import NDArray

    from dynamics.runs import Values

    Array = NDArray[np.float64]

EXPONENT, BETA, DIRECTIONS, DIMENSION = 4, 1.0, 16, 48
RATE, NORM, SEEDS = 0.5, 0.1, 12
LARGE_DIRECTIONS, LARGE_DIMENSION, LARGE_TARGETS, WIDTH_FACTOR = 4096, 16384, 20, 3
# Wanted directions: up to this power of P, beyond which the sum over the rest is far from its limit.
TARGET_POWER = 0.75
MOST_TARGETS = 6
# A run takes this many times the samples that theory needs for its target.
HORIZON = 2.5
RECORDS = 160
SOURCES = ("SGD", "theory at its size", "theory at large size", "ideal sum at large size", "asymptotic")


@dataclass(frozen=True)
class Discretisation:
    """The study, prepared: theory is computed for both sizes, no step is taken yet."""

    settings: dict[str, Any]
    problem: Problem
    targets: NDArray[np.int64]
    needed: Array
    without_noise: Array
    delayed: Array
    large: Problem
    large_targets: NDArray[np.int64]
    large_needed: Array
    progress: bool | None

    @property
    def rates(self) -> Array:
        """Step size of each target."""
        return tuned_rates(self.problem, self.targets, self.settings["rate"])

    @property
    def ends(self) -> NDArray[np.int64]:
        """Steps of the runs of each target."""
        return np.ceil(HORIZON * np.where(np.isnan(self.needed), self.without_noise, self.needed)).astype(np.int64)

    @property
    def steps(self) -> float:
        """Number of steps of all runs together, if none blows up."""
        return float(self.settings["seeds"] * self.ends.sum())

    def expected_seconds(self) -> float:
        """Return about how many seconds the runs take on this machine."""
        return seconds_of(self.problem, self.settings["seeds"], self.steps)

    def work(self) -> str:
        """Return how long the runs should take, in words."""
        return announcement(self.expected_seconds(), self.steps)

    def run(self) -> xr.Dataset:
        """Take the steps; what an interruption leaves undone is NaN."""
        ends, rates = self.ends, self.rates
        samples = np.unique(np.rint(np.geomspace(max(0.02 * ends.min(), 1.0), ends.max(), RECORDS)).astype(np.int64))
        shape = (self.targets.size, self.settings["seeds"])
        loss = np.full((*shape, samples.size), np.nan)
        emerged = np.full((*shape, self.problem.num_directions), np.nan)
        blown = np.full(shape, np.nan)
        reason = "reached_end"
        meter = Meter(self.steps, self.progress)
        with meter, warnings.catch_warnings():
            # That the strongest directions may be above the limit is what the study is about.
            warnings.filterwarnings("ignore", message="The learning rate", category=UserWarning)
            try:
                for at in range(self.targets.size):
                    runs = self._simulated(at, samples[samples <= ends[at]], int(ends[at]))
                    if runs.attrs["stop_reason"] == "interrupted":
                        reason = "interrupted"
                        break
                    loss[at, :, : runs.sizes["time"]] = runs["loss"].values
                    blown[at] = runs["blown_up"].values
                    emerged[at] = runs["emergence_time"].values
                    meter.add(int(ends[at]) * shape[1])
            except KeyboardInterrupt:
                reason = "interrupted"
        return self._labelled(samples, loss, emerged, blown, rates, reason, meter.seconds)

    def _simulated(self, at: int, samples: NDArray[np.int64], steps: int) -> xr.Dataset:
        import sgd_check

        rate, first = float(self.rates[at]), self._first_seed(at)
        return sgd_check.simulate(
            self.problem,
            learning_rate=rate,
            steps=steps,
            seeds=range(first, first + self.settings["seeds"]),
            save_at=SaveAt.at(samples * rate),
            progress=False,
        )

    def _first_seed(self, at: int) -> int:
        """Return the first seed of a target: no two runs of the study share their samples."""
        return int(self.settings["seed"] + at * self.settings["seeds"])

    def _labelled(
        self,
        samples: NDArray[np.int64],
        loss: Array,
        emerged: Array,
        blown: Array,
        rates: Array,
        reason: str,
        seconds: float,
    ) -> xr.Dataset:
        losses = target_losses(self.problem, self.targets)
        reached = np.array([first_below(samples, *pair) for pair in zip(loss, losses, strict=True)])
        exponent, error = self._exponents(losses, reached)
        prediction = predict(self.problem)
        never = np.isnan(emerged).mean(axis=1)
        values: Values = {
            "step_size": (("target",), rates),
            "target_loss": (("target",), losses),
            "samples_needed": (("target", "run"), reached),
            "predicted_samples_needed": (("target",), self.needed),
            "sample_loss": (("target", "run"), loss),
            "emergence_time": (("target", "run"), emerged),
            "predicted_emergence_time": ((), prediction.predicted_emergence_time),
            "predicted_learned_time": ((), prediction.predicted_learned_time),
            "delayed_time": (("target",), self.delayed),
            "blown_up_share": (("target",), blown.mean(axis=1)),
            "censored_share": (("target",), np.where(np.isnan(blown[:, :1]), np.nan, never)),
            "first_seed": (("target",), [self._first_seed(at) for at in range(self.targets.size)]),
            "large_samples_needed": ((), self.large_needed),
            "large_target_loss": ((), target_losses(self.large, self.large_targets)),
            "exponent": ((), exponent),
            "exponent_error": ((), error),
        }
        limit = float(learning_rate_limit(self.problem))
        return study_dataset(
            self.problem,
            values,
            title="Loss against samples at a step size tuned to the last wanted direction",
            coords={
                "target": self.targets,
                "samples": samples,
                "run": np.arange(self.settings["seeds"]),
                "large_target": self.large_targets,
                "source": np.array(SOURCES),
            },
            settings={"answer": "unstable-discretisation", **self.settings},
            attributes={
                "answer": "unstable-discretisation",
                "stop_reason": reason,
                "wall_seconds": seconds,
                "learning_rate_limit": limit,
                "beta": self.settings["beta"],
            },
        )

    def _exponents(self, losses: Array, reached: Array) -> tuple[Array, Array]:
        """Return x of L ∝ n^x by source, and its standard error: of n against L, which is exact, and inverted."""
        logs = np.log(reached)
        sgd = fit_slope(losses, logs.mean(axis=1), logs.std(axis=1, ddof=1) / np.sqrt(logs.shape[1]))
        used = np.isfinite(logs).all(axis=1)
        same = fit_slope(losses, np.where(used, np.log(self.needed), np.nan))
        large = inverse_fit(target_losses(self.large, self.large_targets), self.large_needed)
        ideal = inverse_fit(
            target_losses(self.large, self.large_targets),
            self.large.teacher.coefficients[self.large_targets - 1] ** -2.0,
        )
        law = asymptotic_exponents(self.problem.information_exponent, self.settings["beta"]).loss_samples
        values = [1.0 / sgd.exponent, 1.0 / same.exponent, large[0], ideal[0], law]
        errors = [sgd.standard_error / sgd.exponent**2, 0.0, large[1], ideal[1], 0.0]
        return np.array(values), np.array(errors)


@study_function
def unstable_discretisation(
    *,
    information_exponent: int = EXPONENT,
    beta: float = BETA,
    directions: int = DIRECTIONS,
    dimension: int = DIMENSION,
    targets: Sequence[int] | None = None,
    rate: float = RATE,
    start: float = DEFAULT_START,
    initial_norm: float = NORM,
    seeds: int = SEEDS,
    seed: int = 0,
    large_directions: int = LARGE_DIRECTIONS,
    large_dimension: int = LARGE_DIMENSION,
    progress: bool | None = None,
) -> Discretisation:
    r"""Measure the loss that so many samples reach when the step size is tuned to the last wanted direction.

    .. math:: \eta_{\bar p} = c\, a_{\bar p}\, d^{-k/2}, \qquad n_{\bar p} = T_{\bar p}/\eta_{\bar p} \propto
       a_{\bar p}^{-2} d^{k-1}, \qquad L \propto n^{(1-2\beta)/(2\beta)} \;\text{as } P, \bar p \to \infty

    n_p̄ counts the samples until the loss is that of p̄ learned directions, the last by half.

    Parameters
    ----------
    information_exponent : int
        k ≥ 3; the link is h_k.
    beta : float
        β > ½.
    directions, dimension : int
        P ≥ 4 and d ≥ 2 P of the SGD runs; neuron p starts at C² = s/d from direction p.
    targets : sequence of int, optional
        Numbers p̄ of wanted directions, increasing, at most P.  By default up to six, up to P^0.75.
    rate, start : float
        c > 0 and s > 0.
    initial_norm : float
        σ0 = |w_i| of the SGD runs; it is 0.01 at the large size, where very many neurons share the output.
    seeds : int
        Runs per target, at least 2; no two runs of the study share samples.
    seed : int
        First seed of the samples, and seed of the random start at the large size.
    large_directions, large_dimension : int
        P and d of the theory alone; m = 3 P and a random start.
    progress : bool, optional
        Show a bar on stderr; by default if it is a terminal.

    Returns
    -------
    Dataset
        `samples_needed` (target, run; NaN if never), `predicted_samples_needed` (target), `sample_loss`
        (target, run, samples), `emergence_time` (target, run, direction), `delayed_time` (target, direction),
        `blown_up_share`, `large_samples_needed`, and `exponent(source)` of L ∝ n^x with `exponent_error`: SGD, theory
        at the same size, at the large size, the ideal sum (T_p ∝ p^β exactly, no noise, no lag) at the large size, and
        the asymptotic law.

    Raises
    ------
    TypeError, ValueError
        One sentence: what must hold, what was given.

    Notes
    -----
    Theory takes the exact transit of each matched pair, the lag of its norm, and the delay by the noise of steps at
    first order.  The error of SGD's exponent is that of the means of ln n, from the scatter over runs; that at the
    large size is a jackknife over the targets; theory at a given start has none.  Targets that some run does not reach,
    or in which a run blows up before, enter no fit.

    References
    ----------
    Ren, Nichani, Wu, Lee, arXiv 2504.19983.
    """
    if checked_number(beta, "beta", positive=False) <= 0.5:
        msg = f"Argument `beta` must be above 1/2, or the loss follows no power law, but is {beta}."
        raise ValueError(msg)
    teacher = Teacher.power_law(checked_integer(directions, "directions", minimum=4), beta)
    problem = prepared_pairs(information_exponent, dimension, teacher=teacher, start=start, initial_norm=initial_norm)
    count = checked_integer(large_directions, "large_directions", minimum=64)
    large = Problem(
        activation=problem.activation,
        teacher=Teacher.power_law(count, beta),
        width=WIDTH_FACTOR * count,
        dimension=checked_integer(large_dimension, "large_dimension", minimum=count),
        initial_norm=DEFAULT_NORM,
        seed=checked_integer(seed, "seed", minimum=0),
    )
    wanted = _checked_targets(targets, problem.num_directions)
    large_wanted = np.unique(np.geomspace(1, count**TARGET_POWER, LARGE_TARGETS).round().astype(np.int64))
    settings: dict[str, Any] = {
        "beta": float(beta),
        "targets": wanted.tolist(),
        "rate": checked_number(rate, "rate", positive=True),
        "start": float(start),
        "seeds": checked_integer(seeds, "seeds", minimum=2, maximum=MOST_RUNS),
        "seed": seed,
        "large": {"num_directions": count, "dimension": large.dimension, "width": large.width},
    }
    large_needed = theory_curve(large, large_wanted, rate)[0]
    return Discretisation(
        settings, problem, wanted, *theory_curve(problem, wanted, rate), large, large_wanted, large_needed, progress
    )


def _checked_targets(targets: Sequence[int] | None, count: int) -> NDArray[np.int64]:
    if targets is None:
        chosen = np.geomspace(1, count**TARGET_POWER, MOST_TARGETS).round().astype(np.int64)
        return np.unique(chosen)
    wanted = checked_increasing(targets, "targets", minimum=1)
    if wanted[-1] > count:
        msg = f"Argument `targets` must stay at or below the number of directions, {count}, but is {wanted}."
        raise ValueError(msg)
    return np.array(wanted, dtype=np.int64)
