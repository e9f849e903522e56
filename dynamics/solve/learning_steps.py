"""Steps and samples of SGD until a direction emerges or is learned, with delay and scatter by the size of a step."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dynamics import theory
from dynamics.draws import DRAWN_SEED, RunPlan, drawn_times, exchanged_times
from dynamics.draws.sgd_runs import FEWEST_DRAWS, MOST_DRAWS
from dynamics.problem import (
    Problem,
    check_choice,
    checked_integer,
    decouples,
    is_correlation,
    is_homogeneous,
    is_spherical,
)
from dynamics.problem.checks import is_same, require
from dynamics.problem.optimizers import SGD, Optimizer, ZerothOrder, checked_optimizer
from dynamics.theory.correlation import learned_level
from dynamics.theory.first_passage import LARGEST_NORM, Chain, FirstPassage, norm_at_arrival, passage
from dynamics.theory.learning_rates import resolved_rate
from dynamics.theory.step_noise import EscapeBias, LearningPair
from hermite.text.formulas import clean, table_of_pairs
from hermite.text.messages import refuse, rounded, with_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr

#: Relative scatter beyond which intervals of leading order in the learning rate are too narrow.
_LARGEST_SCATTER = 0.18
#: Standard deviations of a normal law on either side that hold 95 % of it.
_WIDTH_95, _TAIL = 1.959963984540054, 0.025
#: Equally likely arrivals and lags of which the times of learning are sums.
ARRIVALS, LAGS = 2000, 41
#: Seed of the scatter that learned times have and emergence times have not.
DRAW_SEED = 1
#: Attribute of an answer with the steps that `--learning-steps` asked for, as JSON.
STEPS_ATTRIBUTE = "learning_steps"
#: Note where noise may exchange neurons, or directions.
_EXCHANGED = "noise may give the direction another neuron, or its neuron another direction"


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningSteps:
    """Steps and samples until a direction emerges or is learned, told in a line by `str`; NaN: unknown, inf: never.

    Examples
    --------
    >>> import dynamics
    >>> start = ([[0.5]], [[1.0]], [1e-4])
    >>> teacher = dynamics.Teacher([1.0])
    >>> problem = dynamics.Problem(activation="he4", teacher=teacher, width=1, dimension=64, initial_overlaps=start)
    >>> found = learning_steps(dynamics.predict_emergence(problem), direction=1, learning_rate=2e-5, batch_size=4)
    >>> print(found)
    direction 1, emergence: 19900 ± 2700 steps (95 % of runs: 15200 to 25700), 80000 ± 11000 samples
    >>> found.event, round(found.time, 4)
    ('emergence', 0.3873)
    """

    #: Number p of the direction, from 1, and "emergence" or "learned".
    direction: int
    event: str
    learning_rate: float
    batch_size: int
    #: Flow time of the event in the answer, and its estimated numerical error.
    time: float
    time_error: float
    #: Flow time that steps of finite size add on the mean, as far as the answer does not have it; NaN if unknown.
    delay: float
    #: Mean number of steps, and its standard deviation, over the runs in which the direction has the neuron that
    #: matching gives it, or over drawn runs; without the delay where that is unknown.
    steps: float
    steps_deviation: float
    #: Steps between which the event is in 95 % of all runs, with the numerical error on both sides; the upper end is
    #: inf where more than one run in forty leaves the direction without a neuron.
    steps_low: float
    steps_high: float
    #: Effects that the numbers do not model.
    notes: tuple[str, ...] = ()

    @property
    def samples(self) -> float:
        """Mean number of samples, B per step."""
        return self.batch_size * self.steps

    @property
    def samples_low(self) -> float:
        """Lower end of the interval, in samples."""
        return self.batch_size * self.steps_low

    @property
    def samples_high(self) -> float:
        """Upper end of the interval, in samples."""
        return self.batch_size * self.steps_high

    def __str__(self) -> str:
        texts = self._said()
        line = f"direction {self.direction}, {self.event}: {texts['steps']}"
        if "samples" in texts:
            line += f" steps{self._interval(' (95 % of runs: {})')}, {texts['samples']} samples"
        return "; ".join([line, *self.notes])

    def _repr_html_(self) -> str:
        """Return steps, samples, interval and notes as an HTML table, for notebooks."""
        rows = self._said()
        if interval := self._interval("{} steps"):
            rows["95 % of runs"] = interval
        rows["step"] = f"η = {self.learning_rate:g}, batch {self.batch_size}"
        rows |= {"not modelled": "<br/>".join(map(clean, self.notes))} if self.notes else {}
        return table_of_pairs(f"<b>Direction {self.direction}</b>, {self.event}", rows)

    def _said(self) -> dict[str, str]:
        """Return mean and scatter as texts, by "steps" and "samples"; without an interval "steps" alone."""
        if not math.isfinite(self.steps):
            return {"steps": "never" if math.isinf(self.steps) else "unknown"}
        if not math.isfinite(self.steps_deviation):
            return {"steps": f"unknown (about {float(f'{self.steps:.1g}'):g} by the flow alone)"}
        units = {"steps": 1, "samples": self.batch_size}
        return {name: with_error(size * self.steps, size * self.steps_deviation) for name, size in units.items()}

    def _interval(self, form: str) -> str:
        """Return the two ends of the 95 % interval, in steps, within the text `form`; "" if the interval is unknown."""
        if not math.isfinite(self.steps_deviation):
            return ""
        ends = (self.steps_low, self.steps_high)
        low, high = (rounded(end, self.steps_deviation)[0] if math.isfinite(end) else "never" for end in ends)
        return form.format(f"{low} to {high}")


def stored_steps(steps: Sequence[LearningSteps]) -> dict[str, str]:
    """Return the attribute of an answer, as {name: JSON text}, that stores the steps of some directions."""
    return {STEPS_ATTRIBUTE: json.dumps([asdict(entry) for entry in steps])}


def steps_of(answer: xr.Dataset) -> list[LearningSteps]:
    """Return the steps that `stored_steps` has put into an answer, one entry per direction, or an empty list."""
    stored = json.loads(str(answer.attrs.get(STEPS_ATTRIBUTE, "[]")))
    return [LearningSteps(**(entry | {"notes": tuple(entry["notes"])})) for entry in stored]


def learning_steps(
    answer: xr.Dataset,
    *,
    direction: int,
    event: str = "emergence",
    learning_rate: float | str | None = None,
    batch_size: int | None = None,
    optimizer: Optimizer | str | None = None,
    draws: int | None = None,
) -> LearningSteps:
    r"""Return after how many steps and samples of SGD a direction emerges or is learned, with an interval.

    The time T of the event in the answer has the delay added that a step of finite size causes, at leading order in the
    learning rate, and the scatter over runs around it:

    .. math:: n = \frac{T}{\eta} (1 + \varphi)\, e^{s x - s^2/2}, \qquad x \sim N(0, 1),

    φ the relative delay and s the relative scatter of `dynamics.theory.escape_bias` at the rate η/B for an emergence,
    of `dynamics.theory.learned_bias` for the time at which the direction is learned.

    This holds up to s = 0.18. Above it, and for one neuron and one direction, times of emergence have the exact law of
    the steps (`first_passage`), to which the labels of other directions are noise; a learned time is later by a normal
    time at leading order. Where noise may exchange neurons, and at k ≤ 2 where directions do not decouple, runs with
    the mean motion and the noise of SGD are drawn (`dynamics.draws.drawn_times`, a fixed seed), and times are T times
    those of the runs over that of a run without noise: 128 runs, or 79 or 39 if more take over a minute. The interval
    leaves out a fortieth of them on either side, of 39 runs none.

    Parameters
    ----------
    answer : Dataset
        A flow or prediction: whatever has `emergence_time`, or `learned_time`, per direction. One of finite steps has a
        part of the delay in its times; only the rest is added.
    direction : int
        p, from 1.
    event : {"emergence", "learned"}
        A neuron has the squared overlap `emergence_level` with the direction, or the neurons carry half of its weight.
    learning_rate : float or str, optional
        η > 0, dimensionless, for steps w ← w − η ∇ ½(f − f*)²; text such as "0.1x" is that share of
        `learning_rate_limit`. May be left out only where the answer has it.
    batch_size : int, optional
        B ≥ 1, samples per step. By default that of the answer, or else 1.
    optimizer : dynamics.SGD or ZerothOrder, optional
        What a step does with the gradient. By default that of the answer, or else plain SGD. With momentum β and
        dampening δ runs are taken for those of plain SGD at η (1 − δ)/(1 − β), right as d → ∞ at fixed β, so that a
        time t of a flow takes t (1 − β)/((1 − δ) η) steps. `ZerothOrder` of one sample per step is known for the
        objective "correlation". Other steps are those of an answer that has them, T/η, without an interval.
    draws : int, optional
        Number of runs to draw, from 39 to 4096, however long it takes and however small the scatter is.

    Returns
    -------
    LearningSteps

    Raises
    ------
    TypeError, ValueError
        If the answer has no such times, or other steps than those asked for.

    Notes
    -----
    The interval is over samples, at the start of the answer; another start has another matched overlap and so another
    time. Where noise may give the direction another neuron, or its neuron another direction
    (`dynamics.theory.rivals_of_pairs`), the interval is widened to the times of a greedy matching of pairs whose times
    scatter, unless over a thousand pairs compete; `notes` says which. Neurons that share the weight of a direction are
    not modelled. Delay and scatter are known for matched pairs (homogeneous student, k ≥ 3, c_0 = 0, orthonormal
    teacher; of the learned time on isotropic inputs) and for one neuron under the objective "correlation". The exact
    law is of single samples; a batch counts as B steps at η/B on one sample each, and a homogeneous neuron must keep a
    squared norm of at most a twentieth of a_p until it emerges.

    Runs are drawn for the homogeneous student on isotropic inputs with any teacher, below the limit of stability: some
    seconds up to 16 neurons. A run without the event by eight times T, at k ≥ 3 by 40 times, counts as later than all
    others, and is left out of mean and deviation. Elsewhere, and where a minute is not enough for 39 runs, there is no
    interval: the text says "unknown", and `steps` is T/η.

    Examples
    --------
    >>> import dynamics
    >>> start = ([[0.5, 0.1]], [[1.0]], [1e-4])
    >>> problem = dynamics.Problem(
    ...     activation="he4", teacher=dynamics.Teacher([0.8, 0.6]), width=1, dimension=64, initial_overlaps=start
    ... )
    >>> answer = dynamics.predict_emergence(problem)
    >>> found = dynamics.learning_steps(answer, direction=1, learning_rate=1e-4, batch_size=32)
    >>> found.steps_low < found.time / 1e-4 < found.steps < found.steps_high
    True
    >>> found.samples == 32 * found.steps
    True
    """
    import xarray as xr

    check_choice("event", event, ("emergence", "learned"))
    name = f"{event}_time"
    require(
        isinstance(answer, xr.Dataset),
        f"Argument `answer` must be a Dataset, but is {type(answer).__name__}.",
        error=TypeError,
    )
    require(
        name in answer and answer[name].dims == ("direction",),
        f"Argument `answer` must have the variable {name!r} per direction, but has not.",
    )
    place = checked_integer(direction, "direction", minimum=1, maximum=answer.sizes["direction"]) - 1
    rate, size, stepped, chosen = _step(answer, learning_rate, batch_size, optimizer)
    time, error = (
        float(answer[variable].values[place]) if variable in answer else math.nan
        for variable in (name, f"{name}_error")
    )
    problem = Problem.from_dataset(answer)
    count = None if draws is None else check_draws(draws, problem, chosen)
    # Runs are those of plain SGD at another rate, η' = `amplified` η. The time η n of an answer of steps is η' n there.
    amplified = chosen.amplification if isinstance(chosen, SGD) else 1.0
    scale = amplified if stepped else 1.0
    times = _times(problem, place, event, rate * amplified, size, time * scale, chosen, count, stepped=stepped)
    if math.isnan(time):
        cause = answer[name].attrs.get("undefined", "it ends before, no neuron is matched, or no formula holds")
        times = times._replace(notes=(f"the answer has no time for it: {cause}",))
    elif amplified != 1.0:
        note = f"{chosen} is taken for plain SGD at the learning rate {rate * amplified:.3g}, its limit as d grows"
        times = times._replace(notes=(*times.notes, note))
    margin, per_step = 0.0 if math.isnan(error) else error * scale, rate * amplified
    return LearningSteps(
        direction=place + 1,
        event=event,
        learning_rate=rate,
        batch_size=size,
        time=time,
        time_error=error,
        delay=times.delay / scale,
        steps=times.mean / per_step,
        steps_deviation=times.deviation / per_step,
        steps_low=(times.ends[0] - margin) / per_step,
        steps_high=(times.ends[1] + margin) / per_step,
        notes=times.notes,
    )


def _step(
    answer: xr.Dataset, learning_rate: object, batch_size: object, optimizer: object
) -> tuple[float, int, bool, Optimizer]:
    """Return learning rate, batch size, whether the answer is one of finite steps of SGD, and the optimizer.

    Arguments that are None are those of the answer. Raise ValueError if they contradict it, if its learning rate
    varies, or if the noise of the optimizer is not known for its problem.
    """
    stepped = "step_theory" in answer.attrs
    settings = {"learning_rate": learning_rate, "batch_size": batch_size}
    require(
        "schedule" not in answer.attrs,
        f"Argument `answer` must be one of one learning rate, but is one of {answer.attrs.get('schedule')}, whose "
        "coordinate `step` has the steps.",
    )
    for name, value in settings.items() if stepped else ():
        stored = answer.attrs[name]
        is_stored = value is None or value == stored or (isinstance(value, float) and is_same(value, stored))
        require(is_stored, f"Argument `{name}` must be that of the answer, {stored:g}, but is {value}.")
        settings[name] = stored
    stored_optimizer = checked_optimizer(answer.attrs.get("optimizer"))
    chosen = stored_optimizer if optimizer is None else checked_optimizer(optimizer)
    require(
        not stepped or chosen == stored_optimizer,
        f"Argument `optimizer` must be that of the answer, {stored_optimizer}, but is {chosen}.",
    )
    size = 1 if settings["batch_size"] is None else checked_integer(settings["batch_size"], "batch_size", minimum=1)
    problem = Problem.from_dataset(answer)
    if not (stepped or _is_known(problem, size, chosen)):
        cause = (
            "whose steps do not follow the flow" if chosen.sees_axes else "whose noise is known for one neuron alone"
        )
        also = ", or ZerothOrder on one sample per step" if is_correlation(problem) else ""
        refuse(
            f"Argument `optimizer` must be SGD for an answer without its steps{also}, but is {chosen}, {cause}; "
            "an answer of `solve_problem` with this optimizer has them."
        )
    rate = resolved_rate(problem, settings["learning_rate"], size, optimizer=chosen)
    if rate is None:
        refuse("Argument `learning_rate` must be given for an answer that has none, but is absent.", error=TypeError)
    return rate, size, stepped, chosen


class _Times(NamedTuple):
    """Times of an event in runs of SGD, in flow time: mean, delay, standard deviation, ends of the 95 % interval.

    `delay` is the mean less the time of the answer; `notes` are sentences on what is not modelled.
    """

    mean: float
    delay: float
    deviation: float
    ends: tuple[float, float]
    notes: tuple[str, ...] = ()


def _unknown(time: float, cause: str) -> _Times:
    """Return the answer's time as the mean, the rest NaN, with a note on why the effect of finite steps is unknown."""
    note = f"{cause}: the steps are those of the answer's time alone"
    return _Times(time, math.nan, math.nan, (math.nan, math.nan), (note,))


def _is_known(problem: Problem, size: int, chosen: Optimizer) -> bool:
    """Return whether theory has the noise of an optimizer on batches of `size` samples for a problem."""
    return isinstance(chosen, SGD) or (isinstance(chosen, ZerothOrder) and is_correlation(problem) and size == 1)


def _times(
    problem: Problem,
    place: int,
    event: str,
    rate: float,
    size: int,
    time: float,
    chosen: Optimizer,
    draws: int | None,
    *,
    stepped: bool,
) -> _Times:
    """Return the times of an event in runs of SGD, by theory of pairs, by drawn runs, or unknown.

    `place` is the index of the direction, `event` "emergence" or "learned", `rate` η, `size` the samples per step,
    `time` that of the answer, and `draws` the number of runs to draw, None to draw only where needed. `stepped` says
    that the answer has the mean effect of finite steps already.
    """
    if not _is_known(problem, size, chosen):
        return _unknown(time, f"how the noise of {chosen} scatters times is unknown")
    has_leading_order = size > 1 and decouples(problem) and problem.activation.coefficients[0] == 0.0
    if draws is None and isinstance(chosen, SGD) and is_alone(problem) and not has_leading_order:
        times = _of_one_neuron(problem, event, rate, size, time)
        if times is not None:
            return times
    if draws is None and not is_drawn(problem):
        directions = chosen.directions if isinstance(chosen, ZerothOrder) else None
        return _of_pair(problem, place, event, rate, size, time, directions, stepped=stepped)
    if 0.0 < time < math.inf:
        return _of_drawn_runs(problem, place, event, rate, size, time, draws, stepped=stepped)
    return _Times(time, math.nan, 0.0 * time, (time, time))


def check_draws(draws: object, problem: Problem, optimizer: Optimizer | str | None) -> int:
    """Return a number of runs to draw; refuse another value, and a problem or optimizer whose runs cannot be drawn."""
    count = checked_integer(draws, "draws", minimum=FEWEST_DRAWS, maximum=MOST_DRAWS)
    is_known = can_be_drawn(problem) and isinstance(checked_optimizer(optimizer), SGD)
    require(
        is_known,
        f"Argument `draws` must be absent but for SGD of the homogeneous student on isotropic inputs, but is {count}.",
    )
    return count


def can_be_drawn(problem: Problem) -> bool:
    """Return whether runs of a problem can be drawn: homogeneous, on isotropic inputs."""
    return is_homogeneous(problem) and problem.inputs is None


def is_drawn(problem: Problem) -> bool:
    """Return whether times of a problem are always taken from drawn runs: it can be drawn, and k ≤ 2."""
    return can_be_drawn(problem) and not decouples(problem)


def is_alone(problem: Problem) -> bool:
    """Return whether a problem has one neuron and one direction of which the exact law of steps is known."""
    has_law = is_homogeneous(problem) or is_spherical(problem)
    single = problem.width == 1 and problem.num_directions == 1
    return has_law and single and problem.inputs is None and problem.dimension >= 2


def _of_one_neuron(problem: Problem, event: str, rate: float, size: int, time: float) -> _Times | None:
    """Return the times of an event by the exact law of the steps of one neuron, or None where it does not hold.

    `event` is "emergence" or "learned", `rate` η, `size` the samples per step and `time` that of the answer, NaN for
    none. The law does not hold where the norm of a homogeneous neuron is not negligible until the emergence.
    """
    if math.isnan(time):
        return None
    level, lag = problem.emergence_level, (0.0, 0.0)
    if event == "learned" and is_spherical(problem):
        level = learned_level(problem) ** 2
        if not level < 1.0:
            return None
    overlaps, a = problem.start().teacher_overlap[0], float(problem.teacher.coefficients[0])
    law = passage(Chain(problem, a, problem.label_noise), rate / size, level, overlaps)
    if law is None:
        return None
    norm = norm_at_arrival(problem, law.log_growth)
    if norm > LARGEST_NORM * a:
        return None
    above = _above_limit(problem, rate, size)
    notes = () if above is None else (above,)
    if event == "learned" and not is_spherical(problem):
        lag = _lag(problem, 0, rate / size, theory.predict(problem), norm)
        if notes or not math.isfinite(lag[0]):
            unknown = _unknown(time, "what the size of a step adds is unknown")
            return unknown._replace(notes=(*notes, *unknown.notes))
    exact = "the interval is that of the exact law of steps"
    taken = f"{exact}, of a batch as {size} steps on one sample each" if size > 1 else exact
    return _of_law(law, lag, rate / size, time, (*notes, taken))


def _lag(
    problem: Problem, place: int, rate: float, pairs: theory.EmergencePrediction, squared_norm: float
) -> tuple[float, float]:
    """Return mean and deviation of the flow time from the emergence of a direction until it is learned.

    `place` is the index of the direction, `rate` η/B, `pairs` the matched pairs and `squared_norm` that of the neuron
    at the emergence. From there on the noise is small: they are those of `LearningPair`, at leading order. The mean is
    inf or NaN where the direction is never learned.
    """
    emergence, learned = float(pairs.predicted_emergence_time[place]), float(pairs.predicted_learned_time[place])
    if not math.isfinite(learned - emergence):
        return math.nan, math.nan
    overlaps, norms = pairs.learning_overlap.copy(), pairs.learning_squared_norm.copy()
    overlaps[place] = math.copysign(math.sqrt(problem.emergence_level), overlaps[place])
    norms[place] = squared_norm
    # Of the other directions some are learned already.
    times = np.maximum(pairs.predicted_learned_time - emergence, 0.0)
    late = replace(pairs, learning_overlap=overlaps, learning_squared_norm=norms, predicted_learned_time=times)
    return LearningPair(problem, late, place).passage(rate, learned - emergence)


def _of_law(
    law: FirstPassage, lag: tuple[float, float], per_step: float, time: float, notes: tuple[str, ...]
) -> _Times:
    """Return the times of an event that comes a normal time after the arrival of a law of steps.

    `lag` has mean and deviation of that time, 0 for the arrival itself; `per_step` is the flow time of a step of the
    law, and `time` that of the answer.
    """
    if math.isinf(law.mean_steps):
        note = "the noise of the steps traps the neuron: take a smaller learning rate"
        return _Times(math.inf, math.inf, math.nan, (math.nan, math.nan), (note,))
    sides = ((_TAIL, -1.0), (1.0 - _TAIL, 1.0))
    ends = [law.steps_quantile(share) + side * law.quantile_error(share) for share, side in sides]
    low, high = (max(end, 0.0) * per_step for end in ends)
    if lag != (0.0, 0.0):
        from scipy.special import ndtri

        # Sums of equally likely arrivals and lags.
        arrivals = np.interp((np.arange(ARRIVALS) + 0.5) / ARRIVALS, law.chances, law.steps) * per_step
        lags = lag[0] + lag[1] * ndtri((np.arange(LAGS) + 0.5) / LAGS)
        low, high = np.quantile(np.add.outer(arrivals, lags), [_TAIL, 1.0 - _TAIL]).tolist()
    mean, deviation = law.mean_steps * per_step + lag[0], math.hypot(law.steps_deviation * per_step, lag[1])
    return _Times(mean, mean - time, deviation, (low, high), notes)


def _of_drawn_runs(
    problem: Problem, place: int, event: str, rate: float, size: int, time: float, draws: int | None, *, stepped: bool
) -> _Times:
    """Return the times of an event in drawn runs of the noisy equations; unknown above the limit of stability.

    `place` is the index of the direction, `event` "emergence" or "learned", `rate` η, `size` the samples per step and
    `time` that of the answer; `stepped` says that the answer has the mean effect of finite steps already. `draws` is
    the number of runs, None for a default. For the answer of a flow, drawn times are multiplied by its `time` over the
    time of a drawn run without noise.
    """
    if (note := _above_limit(problem, rate, size)) is not None:
        return _unknown(time, note)
    plan = RunPlan.of(problem, rate / size, time, draws)
    if plan is None:
        fewest = RunPlan.of(problem, rate / size, time, FEWEST_DRAWS)
        minutes = math.nan if fewest is None else fewest.minutes(problem)
        return _unknown(
            time,
            f"an interval takes {FEWEST_DRAWS} drawn runs, about {minutes:.2g} minutes: ask for them by `draws`, or "
            "--step-draws of the command",
        )
    drawn, quiet = drawn_times(problem, plan, place, event, rate / size)
    times = np.sort(drawn if stepped else drawn * (time / quiet))
    seen, last = times[np.isfinite(times)], int(_TAIL * (times.size + 1))
    if seen.size < 2 or not math.isfinite(quiet):
        return _unknown(time, f"drawn runs do not have it by {plan.longest:.0f} times that time")
    notes = [f"the interval is drawn: {times.size} runs, seed {DRAWN_SEED}"]
    if late := times.size - seen.size:
        notes.append(
            f"{late} of them do not have it by {plan.longest:.0f} times the flow's time, and are left out of the mean"
        )
    mean, deviation = float(seen.mean()), float(seen.std(ddof=1))
    return _Times(mean, mean - time, deviation, (float(times[last - 1]), float(times[-last])), tuple(notes))


def _above_limit(problem: Problem, rate: float, size: int) -> str | None:
    """Return a note if the learning rate is above the limit of stability, where one is known."""
    try:
        limit = math.inf if is_correlation(problem) else theory.learning_rate_limit(problem, batch_size=size)
    except ValueError:  # none is known, or the flow does not get to its end
        return None
    return f"the learning rate is above the limit of stability, {limit:.3g}" if rate > limit else None


def _scattered(
    problem: Problem,
    place: int,
    event: str,
    rate: float,
    size: int,
    time: float,
    pairs: theory.EmergencePrediction,
    bias: EscapeBias,
    scatter: float,
    *,
    stepped: bool,
) -> _Times:
    """Return the times of an event if noise scatters times by so large a share that the leading order does not hold.

    Without rivals they are those of the exact law of the steps of the pair, to which the other directions are noise;
    else those of drawn runs. `place` is the index of the direction, `event` "emergence" or "learned", `rate` η, `size`
    the samples per step and `time` that of the answer; `stepped` says that the answer has the mean effect of finite
    steps already. `pairs` are the matched pairs, `bias` the effect of the noise on them, and `scatter` the standard
    deviation of ln T of theory, for the note.
    """
    note = f"noise scatters times by a share of {scatter:.2g}, beyond leading order"
    if not (can_be_drawn(problem) and 0.0 < time < math.inf):
        return _unknown(time, note)
    if is_alone(problem):
        times = _of_one_neuron(problem, event, rate, size, time)
    elif theory.rivals_of_pairs(problem, pairs, bias.scatter).settled[place]:
        times = _among_others(problem, place, event, rate, size, time, pairs)
    else:
        times = None
    if times is None:
        times = _of_drawn_runs(problem, place, event, rate, size, time, None, stepped=stepped)
    return times._replace(notes=(note, *times.notes))


def _among_others(
    problem: Problem,
    place: int,
    event: str,
    rate: float,
    size: int,
    time: float,
    pairs: theory.EmergencePrediction,
) -> _Times | None:
    """Return the times of an event by the exact law of the steps of a pair, or None where it does not hold.

    The labels of the other directions are noise of the variance Σ a_q² E σ². `place` is the index of the direction,
    `event` "emergence" or "learned", `rate` η, `size` the samples per step, `time` that of the answer, and `pairs` are
    the matched pairs.
    """
    a = problem.teacher.coefficients
    variance = problem.activation.norm_squared * float(np.sum(np.delete(a, place) ** 2))
    chain = Chain(problem, float(a[place]), math.hypot(problem.label_noise, math.sqrt(variance)))
    overlap = pairs.matched_overlap[place : place + 1]
    law = passage(chain, rate / size, problem.emergence_level, overlap)
    if law is None:
        return None
    norm = float(problem.start().squared_norm[pairs.matched_neuron[place]]) * math.exp(min(law.log_growth, 700.0))
    lag = (0.0, 0.0) if event == "emergence" else _lag(problem, place, rate / size, pairs, norm)
    if norm > LARGEST_NORM * a[place] or _above_limit(problem, rate, size) or not math.isfinite(lag[0]):
        return None
    notes = ("the interval is that of the exact law of steps, to which the other directions are noise",)
    return _of_law(law, lag, rate / size, time, notes)


def _of_pair(
    problem: Problem,
    place: int,
    event: str,
    rate: float,
    size: int,
    time: float,
    directions: int | None,
    *,
    stepped: bool,
) -> _Times:
    """Return the times of an event for a direction and its matched neuron, to leading order in the noise of SGD.

    `place` is the index of the direction, `event` "emergence" or "learned", `rate` η, `size` the samples per step and
    `time` that of the answer; `stepped` says that the answer has the mean effect of finite steps already. `directions`
    is the number of random directions per step of a zeroth-order optimizer, else None. Where noise may exchange the
    neurons that find the directions, the interval also covers such runs.
    """
    if not (is_correlation(problem) or decouples(problem)):
        return _unknown(
            time,
            "what the size of a step adds is known for the homogeneous student alone, at k <= 2 on isotropic inputs",
        )
    pairs = theory.predict(problem)
    bias = theory.escape_bias(problem, rate / size, pairs, directions)
    lateness, known_lateness, scatter = (float(values[place]) for values in (bias.bias, bias.step_bias, bias.scatter))
    if scatter > _LARGEST_SCATTER:
        return _scattered(problem, place, event, rate, size, time, pairs, bias, scatter, stepped=stepped)
    notes = bias.notes
    if math.isfinite(lateness):
        above = _above_limit(problem, rate, size)
        notes = () if above is None else (above,)
        if event == "learned":
            has_known_noise = not notes and problem.inputs is None
            learned_bias = None
            if has_known_noise:
                learned_bias = theory.learned_bias(problem, rate / size, pairs, bias, place, directions)
            lateness, known_lateness, scatter = (
                (learned_bias.bias, learned_bias.step_bias, learned_bias.scatter) if learned_bias else (math.nan,) * 3
            )
            if scatter > _LARGEST_SCATTER:
                return _scattered(problem, place, event, rate, size, time, pairs, bias, scatter, stepped=stepped)
    if math.isinf(lateness):
        note = "the noise of the steps traps the neuron: take a smaller learning rate"
        delay = time * math.inf
        mean = time if math.isnan(delay) else delay
        return _Times(mean, delay, math.nan, (math.nan, math.nan), (note,))
    if math.isnan(lateness):
        unknown = _unknown(time, "what the size of a step adds is unknown")
        return unknown._replace(notes=(*notes, *unknown.notes))
    drawn = None
    has_rivals = not is_correlation(problem) and pairs.predicted_emergence_time[place] != 0.0
    if has_rivals and not theory.rivals_of_pairs(problem, pairs, bias.scatter).settled[place]:
        drawn = None if problem.inputs is not None else exchanged_times(problem, pairs, place, rate / size)
        extent = "does not hold these runs" if drawn is None else "holds these runs too"
        notes = (*notes, f"{_EXCHANGED}: the interval {extent}")
    if drawn is not None and event == "learned":
        # It is moved by as much as the emergence, and scatters further.
        emergence = float(bias.emergence_time[place])
        learned = float(pairs.predicted_learned_time[place]) * (1.0 + lateness)
        lag = math.sqrt(max((scatter * learned) ** 2 - (float(bias.scatter[place]) * emergence) ** 2, 0.0))
        jitter = lag * np.random.default_rng(DRAW_SEED).standard_normal(drawn.size)
        drawn = np.maximum(learned - emergence + drawn + jitter, 0.0)
    delay = time * (lateness - (known_lateness if stepped else 0.0))
    mean = time + (0.0 if math.isnan(delay) else delay)
    low, high = (mean * math.exp(side * scatter - 0.5 * scatter**2) for side in (-_WIDTH_95, _WIDTH_95))
    if drawn is not None:
        # Among others the pair may take longer than alone, which the answer has and the draws have not.
        first, middle, last = np.quantile(drawn, [_TAIL, 0.5, 1.0 - _TAIL], method="inverted_cdf").tolist()
        longer = mean / middle if 0.0 < middle < math.inf else 1.0
        low, high = min(low, first, longer * first), max(high, last, longer * last)
    return _Times(mean, delay, mean * scatter, (low, high), notes)
