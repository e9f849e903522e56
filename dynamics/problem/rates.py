"""Learning-rate schedules: values that give the learning rate η of every step and that know the call that makes them.

The text of such a call, `repr(schedule)`, makes the schedule again (`schedule_of`); so files and commands hold it.
Numbers out of range raise ValueError, values that are no numbers TypeError.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from dynamics.problem.checks import checked_integer, checked_list, checked_number
from hermite.arrays import Array, Integers
from hermite.text.messages import refuse, require, shown, suggestion
from hermite.text.signs import keyboard_text


@dataclass(frozen=True)
class Schedule:
    """Learning rate η of every step: `name` is the call that makes it, `rates` turns steps (float64) to rates.

    Schedules are equal if their names are.

    Examples
    --------
    >>> schedule = cosine(0.1, 100)
    >>> schedule
    cosine(0.1, 100)
    >>> round(schedule(25), 4), schedule.table(101)[[0, 50, 100]].round(4).tolist()
    (0.0854, [0.1, 0.05, 0.0])
    """

    name: str
    rates: Callable[[Array], Array] = field(compare=False)

    def table(self, steps: int) -> Array:
        """Return η of the steps 0, …, steps − 1."""
        return self.rates(np.arange(steps, dtype=np.float64))

    def rate(self, step: int) -> float:
        """Return η of one step, as a call of the schedule does."""
        return float(self.rates(np.array([step], dtype=np.float64))[0])

    __call__ = rate

    def __repr__(self) -> str:
        return self.name


def power_law_decay(initial: float, exponent: float, *, onset: float = 1.0) -> Schedule:
    r"""Return the learning rate that is constant at first and then decays as a power of the step.

    .. math:: \eta_s = \eta_0\, (1 + s/s_0)^{-\gamma}

    with η_0 = `initial` > 0, γ = `exponent` ≥ 0, and s_0 = `onset` > 0 the step around which the decay sets in.

    Examples
    --------
    >>> power_law_decay(0.1, 0.5, onset=100)(300)
    0.05
    """
    start = checked_number(initial, "initial", positive=True)
    power = checked_number(exponent, "exponent", positive=False)
    after = checked_number(onset, "onset", positive=True)
    name = f"power_law_decay({start!r}, {power!r}, onset={after!r})"
    return Schedule(name, partial(_decayed, start, power, after))


def inverse_root(initial: float, onset: float) -> Schedule:
    r"""Return the learning rate that decays as the inverse root of the step: `power_law_decay` with γ = ½.

    ``warmup(inverse_root(rate, n), n)`` is the schedule of Transformers, with its largest rate at step n.

    Examples
    --------
    >>> inverse_root(0.1, 100)(300)
    0.05
    """
    start = checked_number(initial, "initial", positive=True)
    after = checked_number(onset, "onset", positive=True)
    return Schedule(f"inverse_root({start!r}, {after!r})", partial(_decayed, start, 0.5, after))


def piecewise(rates: Sequence[float], boundaries: Sequence[int]) -> Schedule:
    """Return the learning rate that changes at given steps and is constant between them.

    `rates` are η_0, η_1, … > 0, and `boundaries` positive increasing steps, one fewer: from boundaries[j] on the rate
    is rates[j + 1].

    Examples
    --------
    >>> piecewise([0.1, 0.01], [50]).table(100)[[49, 50]].tolist()
    [0.1, 0.01]
    """
    values = [checked_number(rate, "rates", positive=True) for rate in checked_list(rates, "rates")]
    edges = [checked_integer(edge, "boundaries", minimum=1) for edge in checked_list(boundaries, "boundaries")]
    require(
        len(edges) == len(values) - 1,
        f"Argument `boundaries` must have one entry fewer than the {len(values)} rates, but has {len(edges)}.",
    )
    require(all(a < b for a, b in pairwise(edges)), f"Argument `boundaries` must increase, but is {edges}.")
    return Schedule(f"piecewise({values}, {edges})", partial(_looked_up, np.array(values), np.array(edges)))


def step_decay(initial: float, factor: float, every: int) -> Schedule:
    r"""Return the learning rate that is multiplied by a factor after every so many steps.

    .. math:: \eta_s = \eta_0\, f^{\lfloor s/n \rfloor}

    with η_0 = `initial` > 0, f = `factor` above 0 and up to 1, and n = `every` ≥ 1 steps.

    Examples
    --------
    >>> step_decay(0.1, 0.5, 30).table(90)[[29, 30, 89]].tolist()
    [0.1, 0.05, 0.025]
    """
    start = checked_number(initial, "initial", positive=True)
    share = checked_number(factor, "factor", positive=True, maximum=1.0)
    length = checked_integer(every, "every", minimum=1)
    return Schedule(f"step_decay({start!r}, {share!r}, {length})", partial(_stepped, start, share, length))


def cosine(initial: float, steps: int, final: float = 0.0, warmup: int = 0) -> Schedule:
    r"""Return the learning rate that falls along half a cosine, after a linear rise if `warmup` is given.

    .. math:: \eta_s = \eta_f + (\eta_0 - \eta_f)\, \frac{1 + \cos(\pi s/N)}{2} \quad (s < N), \qquad
       \eta_s = \eta_f \quad (s \ge N)

    with η_0 = `initial` > 0, η_f = `final` from 0 to η_0, and N = `steps`. All rates must be positive: with `final` 0
    the schedule ends with its last step N − 1, and longer runs are refused. With `warmup`, fewer than the N steps, it
    is ``warmup(cosine(initial, steps − warmup, final), warmup)``.

    Examples
    --------
    >>> round(cosine(0.1, 100)(50), 4), cosine(0.1, 100, 0.02)(1000)
    (0.05, 0.02)
    """
    start = checked_number(initial, "initial", positive=True)
    count = checked_integer(steps, "steps", minimum=1)
    end = checked_number(final, "final", positive=False, maximum=start)
    rise = checked_integer(warmup, "warmup", minimum=0)
    require(rise < count, f"Argument `warmup` must be below the {count} steps, but is {rise}.")
    name = f"cosine({start!r}, {count}" + (f", final={end!r}" if end else "") + (f", warmup={rise}" if rise else "")
    rates = partial(_cosine, start, end, count - rise)
    return Schedule(f"{name})", partial(_warmed, rates, rise) if rise else rates)


def warmup(schedule: Schedule | float, steps: int) -> Schedule:
    r"""Return a schedule that begins after a linear rise to its first rate.

    .. math:: \eta_s = \frac{s + 1}{n}\, \eta(0) \quad (s < n), \qquad \eta_s = \eta(s - n) \quad (s \ge n)

    with η(s) the `schedule`, or one rate η > 0, and n = `steps` ≥ 1.

    Examples
    --------
    >>> warmup(0.1, 10).table(12)[[0, 4, 9, 11]].round(4).tolist()
    [0.01, 0.05, 0.1, 0.1]
    >>> warmup(step_decay(0.1, 0.5, 30), 10)
    warmup(step_decay(0.1, 0.5, 30), 10)
    """
    rise = checked_integer(steps, "steps", minimum=1)
    if not isinstance(schedule, Schedule):
        rate = checked_number(schedule, "schedule", positive=True)
        schedule = Schedule(repr(rate), partial(_decayed, rate, 0.0, 1.0))
    return Schedule(f"warmup({schedule!r}, {rise})", partial(_warmed, schedule.rates, rise))


def silver(rate: float) -> Schedule:
    r"""Return the silver steps of gradient descent on a convex loss (Altschuler and Parrilo, arXiv:2309.07879).

    .. math:: \eta_s = \eta\, (1 + \rho^{\nu(s + 1) - 1}), \qquad \rho = 1 + \sqrt2,

    η = `rate` = 1/λ_max of the Hessian, ν(t) the exponent of 2 in t, so that the first 2^k − 1 steps sum to
    η (ρ^k − 1): T steps go as far as T^1.2716 steps of η. No single step need descend, and the loss need be convex:
    `dynamics.descent_loss` is that of a quadratic one.

    Examples
    --------
    >>> silver(1.0).table(4).round(4).tolist()
    [1.4142, 2.0, 1.4142, 3.4142]
    """
    unit = checked_number(rate, "rate", positive=True)
    return Schedule(f"silver({unit!r})", partial(_silver, unit))


#: Calls that text can hold, by name.
MAKERS: dict[str, Callable[..., Schedule]] = {
    make.__name__: make for make in (cosine, inverse_root, piecewise, power_law_decay, silver, step_decay, warmup)
}


def check_bearable(learning_rate: object) -> None:
    """Refuse silver steps for students: their losses are not convex."""
    require(
        not (isinstance(learning_rate, Schedule) and "silver(" in learning_rate.name),
        "Argument `learning_rate` must not be silver steps, whose longest diverge unless the loss is convex: that of a "
        "student is not, and bears steps up to 2/λ_max, which is 2/(max(4, k) a_1) for one h_k pair; but is "
        f"{learning_rate!r}. `dynamics.descent_loss` takes them.",
    )


def schedule_of(text: str, makers: dict[str, Callable[..., Schedule]] = MAKERS) -> Schedule:
    """Return the schedule that a call in text makes, such as "cosine(0.01, 100000)"; its arguments are literals.

    Raises TypeError or ValueError, in one sentence, for any other text.

    Examples
    --------
    >>> schedule_of("warmup(cosine(0.1, 200, final=0.01), 10)")
    warmup(cosine(0.1, 200, final=0.01), 10)
    """
    head = text.partition("(")[0].strip()
    require(
        "(" in text and head in makers,
        "Argument `learning_rate` must be a positive number, a share of the limit of stability such as '0.1x', or a "
        f"schedule such as 'cosine(0.01, 100000)', one of {', '.join(sorted(makers))}, but is {shown(text)}."
        f"{suggestion(head, makers)}",
    )
    try:
        call = _bound(ast.parse(keyboard_text(text).strip(), mode="eval").body, makers)
    except (SyntaxError, TypeError, ValueError, RecursionError, MemoryError):
        form = f"{head}{inspect.signature(makers[head], eval_str=False)}".partition(" ->")[0]
        refuse(f"Argument `learning_rate` must be a call {form} of numbers and lists, but is {shown(text)}.")
    schedule: Schedule = _called(call)
    return schedule


def _bound(node: ast.expr, makers: dict[str, Callable[..., Schedule]]) -> object:
    """Return a literal, or a call as a partial of its maker; TypeError or ValueError for anything else."""
    if not isinstance(node, ast.Call):
        return ast.literal_eval(node)
    if not (isinstance(node.func, ast.Name) and node.func.id in makers):
        raise ValueError(node)
    make = makers[node.func.id]
    arguments = [_bound(argument, makers) for argument in node.args]
    keywords = {str(keyword.arg): _bound(keyword.value, makers) for keyword in node.keywords}
    inspect.signature(make).bind(*arguments, **keywords)
    return partial(make, *arguments, **keywords)


def _called(value: object) -> Any:
    """Return the result of a call that `_bound` returned, with calls among its arguments done first, or a literal."""
    if not isinstance(value, partial):
        return value
    keywords = {name: _called(argument) for name, argument in value.keywords.items()}
    return value.func(*map(_called, value.args), **keywords)


# Functions at the top level of a module, so that a schedule can be sent to another process.
def _decayed(initial: float, exponent: float, onset: float, steps: Array) -> Array:
    return np.asarray(initial * (1.0 + steps / onset) ** -exponent)


def _looked_up(rates: Array, boundaries: Integers, steps: Array) -> Array:
    return rates[np.searchsorted(boundaries, steps, side="right")]


def _stepped(initial: float, factor: float, every: int, steps: Array) -> Array:
    """Return rates that are multiplied by `factor` after every `every` steps."""
    return np.asarray(initial * factor ** np.floor(steps / every))


def _cosine(initial: float, final: float, count: int, steps: Array) -> Array:
    """Return rates that fall along half a cosine over `count` steps, then stay."""
    # (1 + cos x)/2 loses its last digits next to x = π.
    left = np.sin(0.5 * np.pi * (1.0 - np.minimum(steps, count) / count)) ** 2
    return np.asarray(final + (initial - final) * left)


def _warmed(rates: Callable[[Array], Array], rise: int, steps: Array) -> Array:
    """Return rates that rise linearly over `rise` steps, then those of a schedule."""
    first = rates(np.zeros(1))
    return np.where(steps < rise, first * ((steps + 1.0) / rise), rates(np.maximum(steps - rise, 0.0)))


def _silver(rate: float, steps: Array) -> Array:
    """Return the rates of the silver schedule, longer at steps with more factors of two."""
    count = steps.astype(np.int64) + 1
    rho = 1.0 + np.sqrt(2.0)
    return np.asarray(rate * (1.0 + rho ** (np.log2(count & -count) - 1.0)))
