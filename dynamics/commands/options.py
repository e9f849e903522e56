"""The options of a run, declared once: the command line, the TOML file and the stored parameters all read this table.

Imports nothing heavy, so that `--help` answers at once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from hermite.text.messages import cut, shown

if TYPE_CHECKING:
    from collections.abc import Callable

MODELS = ("overlaps", "decoupled", "mean-field")
#: Models of the homogeneous student, and those that are integrated in time.
HOMOGENEOUS = ("overlaps", "decoupled")
FLOW = ("overlaps",)
MEAN_FIELD = ("mean-field",)
INTEGRATED = ("overlaps", "mean-field")
METHODS = (
    "auto",
    "explicit",
    "stiff",
    "bdf",
    "sundials",
    "scipy:RK45",
    "scipy:RK23",
    "scipy:DOP853",
    "scipy:Radau",
    "scipy:BDF",
    "scipy:LSODA",
    "gradient-descent",
)
STEP_THEORIES = ("finite-d", "infinite-d")
ESTIMATES = ("auto", "yes", "no")
KEEPS = ("full", "summary")
QUADRATURES = ("auto", "graded", "quantiles", "random")


class Option(NamedTuple):
    """One option: how it is spelled, read, checked and explained."""

    name: str
    read: Callable[[str], Any]
    default: Any
    help: str
    metavar: str = ""
    choices: tuple[str, ...] = ()
    models: tuple[str, ...] = MODELS


def positive_integer(text: str) -> int:
    """Read an integer of at least 1."""
    value = integer(text)
    if value < 1:
        msg = f"must be at least 1, but is {shown(value)}"
        raise ValueError(msg)
    return value


def natural_number(text: str) -> int:
    """Read an integer of at least 0."""
    value = integer(text)
    if value < 0:
        msg = f"must be at least 0, but is {shown(value)}"
        raise ValueError(msg)
    return value


def integer(text: str) -> int:
    """Read an integer; 1e6 is one too."""
    try:
        return int(text)
    except ValueError:
        value = real(text)
        if value != int(value):
            msg = f"must be an integer, but is {shown(text)}"
            raise ValueError(msg) from None
        return int(value)


def real(text: str) -> float:
    """Read a finite number."""
    try:
        value = float(text)
    except ValueError:
        msg = f"must be a number, but is {shown(text)}"
        raise ValueError(msg) from None
    if not math.isfinite(value):
        msg = f"must be finite, but is {cut(text)}"
        raise ValueError(msg)
    return value


def positive(text: str) -> float:
    """Read a number above 0."""
    value = real(text)
    if value <= 0:
        msg = f"must be positive, but is {cut(text)}"
        raise ValueError(msg)
    return value


def non_negative(text: str) -> float:
    """Read a number of at least 0."""
    value = real(text)
    if value < 0:
        msg = f"must be at least 0, but is {cut(text)}"
        raise ValueError(msg)
    return value


def fraction(text: str) -> float:
    """Read a number above 0 and below 1."""
    value = real(text)
    if not 0 < value < 1:
        msg = f"must be above 0 and below 1, but is {cut(text)}"
        raise ValueError(msg)
    return value


def tolerance(text: str) -> float:
    """Read a number between 1e-14 and 1, which float64 can honour."""
    value = real(text)
    if not 1e-14 <= value < 1:
        msg = f"must be at least 1e-14 and below 1, but is {cut(text)}"
        raise ValueError(msg)
    return value


def save_schedule(text: str) -> tuple[str, int]:
    """Read `geometric:200`, `linear:50`, or a bare count, which means geometric."""
    kind, _, count = text.rpartition(":")
    kind = kind or ("geometric" if count.isdigit() else count)
    if kind not in ("geometric", "linear"):
        msg = f"must be geometric:COUNT or linear:COUNT, but is {shown(text)}"
        raise ValueError(msg)
    number = integer(count)
    if number < 2:
        msg = f"must ask for at least 2 times, but asks for {number}"
        raise ValueError(msg)
    return kind, number


def coefficient_list(text: str) -> tuple[float, ...]:
    """Read positive numbers separated by commas."""
    return tuple(positive(part) for part in text.split(","))


def plain(text: str) -> str:
    """Read text as it is."""
    return text


PROBLEM_OPTIONS = (
    Option("k", positive_integer, None, "information exponent; the link is then the Hermite polynomial h_k [4]", "K"),
    Option(
        "activation",
        plain,
        None,
        "link instead of h_k: a name (he3, relu, erf, tanh, ...) or an expression in z",
        "LINK",
    ),
    Option(
        "teacher-activation",
        plain,
        None,
        "link of the teacher, if it is not the student's",
        "LINK",
        models=MEAN_FIELD,
    ),
    Option("order", natural_number, None, "order of the Hermite truncation of links that are not polynomials", "N"),
    Option(
        "beta",
        non_negative,
        None,
        "decay of the teacher's coefficients, a_p ~ p^-beta, sum a_p^2 = 1 [1.0]",
        "BETA",
        models=HOMOGENEOUS,
    ),
    Option(
        "ratio",
        fraction,
        None,
        "ratio of neighbouring coefficients, a_p ~ ratio^p, instead of a power law",
        "R",
        models=HOMOGENEOUS,
    ),
    Option("directions", positive_integer, None, "number of teacher directions P [16; mean-field: 1]", "P"),
    Option(
        "coefficients",
        coefficient_list,
        None,
        "the coefficients themselves, separated by commas, instead of a power law",
        "A,A,...",
    ),
    Option(
        "width",
        positive_integer,
        None,
        "number of neurons m; every direction is covered from about P ln P on [3 P]",
        "M",
        models=HOMOGENEOUS,
    ),
    Option("dimension", positive_integer, None, "input dimension d [max(256, P); mean-field: 64]", "D"),
    Option("initial-norm", positive, 1e-2, "norm of the starting weights, sigma_0", "S0", models=HOMOGENEOUS),
    Option("seed", natural_number, 0, "seed of the random start", "SEED"),
)

SOLVER_OPTIONS = (
    Option("model", plain, "overlaps", "equations to solve", choices=MODELS),
    Option("method", plain, "auto", "integrator; scipy's are referees", choices=METHODS, models=INTEGRATED),
    Option("rtol", tolerance, 1e-8, "wanted relative accuracy", "RTOL", models=INTEGRATED),
    Option(
        "atol",
        positive,
        1e-10,
        "wanted absolute accuracy, in units of 1/sqrt(d) for overlaps",
        "ATOL",
        models=INTEGRATED,
    ),
    Option(
        "error-estimate",
        plain,
        "auto",
        "estimate the numerical errors by a second, looser run; auto: for all methods but the referees",
        choices=ESTIMATES,
        models=FLOW,
    ),
    Option(
        "device",
        plain,
        None,
        "cpu, cuda or cuda:NUMBER: torch carries the stiff method there",
        "NAME",
        models=FLOW,
    ),
    Option(
        "learning-rate",
        positive,
        None,
        "step of SGD, whose mean effect is then integrated, or of the method gradient-descent; time is this times the "
        "step [none: the flow]",
        "ETA",
        models=FLOW,
    ),
    Option(
        "step-theory",
        plain,
        None,
        "equation for --learning-rate: every term of the mean step, or those left as d grows [finite-d]",
        choices=STEP_THEORIES,
        models=FLOW,
    ),
    Option("batch-size", positive_integer, 1, "samples per step of SGD, for --learning-rate", "B", models=FLOW),
    Option("particles", positive_integer, None, "number of particles [4096]", "N", models=MEAN_FIELD),
    Option(
        "quadrature",
        plain,
        "auto",
        "how particles stand for the isotropic law; auto: graded for one axis, else random",
        choices=QUADRATURES,
        models=MEAN_FIELD,
    ),
    Option(
        "t-max",
        positive,
        None,
        "last time [2.5 times the last predicted learned time; mean-field: 20 times that of one neuron alone]",
        "T",
    ),
    Option("t-min", positive, None, "first saved time [a tenth of the first predicted emergence]", "T"),
    Option("save", save_schedule, ("geometric", 150), "saved times: geometric:COUNT or linear:COUNT", "SCHEDULE"),
    Option("keep", plain, "full", "what to keep at each time", choices=KEEPS, models=INTEGRATED),
    Option("max-runtime", positive, None, "wall-clock budget in seconds", "SECONDS", models=INTEGRATED),
    Option(
        "checkpoint-every",
        positive,
        30.0,
        "seconds between two versions of the file that a run can be resumed from",
        "SECONDS",
        models=INTEGRATED,
    ),
)

OPTIONS = (*PROBLEM_OPTIONS, *SOLVER_OPTIONS)
