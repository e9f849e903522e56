"""`predict_kernel`: what a kernel learns of the same teacher, by the theory of its spectrum."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from dynamics.problem import Problem, Student, Teacher, check_choice, check_fields, checked_integer, checked_number
from dynamics.problem.checks import checked_link, checked_list, require, share_of_limit
from dynamics.problem.student import stored_link
from dynamics.runs.dataset import make_dataset
from dynamics.runs.variables import VARIABLES, Variable
from dynamics.theory.kernels import (
    KernelModes,
    feature_modes,
    flow_error,
    kernel_modes,
    kernel_weights,
    online_error,
    online_floor,
    ridge_error,
)
from hermite import HermiteExpansion
from hermite.arrays import Array, Integers
from hermite.text.messages import shown

if TYPE_CHECKING:
    import xarray as xr

ANSWER = "kernel"
REFERENCES = (
    "Jacot, Gabriel, Hongler, arXiv:1806.07572; Ghorbani, Mei, Misiakiewicz, Montanari, arXiv:1904.12191; Canatar, "
    "Bordelon, Pehlevan, arXiv:2006.13198; Simon, Dickens, Karkada, DeWeese, arXiv:2110.03922"
)
#: Kernels, protocols and inputs by name.
KERNELS, PROTOCOLS, INPUTS = ("ntk", "features"), ("online", "ridge", "flow"), ("sphere", "gaussian")
#: Ridge on the matrix of the kernel, and learning rate as a share of 2/K(1), by default.
RIDGE, RATE = 1e-3, "0.4x"
#: Parts of E f*² whose samples are given, and the part of a degree.
LEVELS, HALF = (0.5, 0.1, 0.01), 0.5
#: Numbers of samples, or of times, of a curve by default.
POINTS = 40
#: Most samples that are looked at by protocol, points of each power of ten, and points by which each crossing is found.
MOST, PER_DECADE, ZOOM = {"online": 1e18, "ridge": 1e30}, 12, 24
#: Degrees that a dataset tells apart: at least up to the first, at most up to the second, and up to the last one of
#: which the teacher has this part of its mean square.
FEWEST_DEGREES, LAST_DEGREE, LEAST_PART = 6, 40, 1e-6
#: Largest noise and ridge, whose squares and products with samples are numbers.
LARGEST = 1e100
#: So many samples count as endless.
ENDLESS = 1e15
INPUTS_IN_WORDS = {"sphere": "uniform on |x| = √d", "gaussian": "N(0, I)"}
#: Variables whose names other answers use with another meaning, and their own.
KERNEL_VARIABLES = VARIABLES | {
    "degree": Variable(("degree",), "degree of spherical harmonics", "l"),
    "samples": Variable(("samples",), "number of samples", "n"),
    "test_error": Variable(("samples",), "mean squared error on new inputs, without label noise", "E"),
    "degree_error": Variable(("samples", "degree"), "part of the test error of one degree", "E_l"),
    "teacher_by_degree": Variable(("degree",), "mean square of the part of f* of one degree", "v_l^2"),
}


def kernel_variables(protocol: str) -> dict[str, Variable]:
    """Return the variables of results on kernels; errors of the flow have times too."""
    if protocol != "flow":
        return KERNEL_VARIABLES
    errors = {"test_error": ("samples", "time"), "degree_error": ("samples", "time", "degree")}
    return KERNEL_VARIABLES | {name: KERNEL_VARIABLES[name]._replace(dims=dims) for name, dims in errors.items()}


@dataclass(frozen=True, slots=True)
class KernelQuestion:
    """A checked question: the problem, the link of the kernel, how it is trained, and the samples and times."""

    problem: Problem
    link: HermiteExpansion
    kernel: str
    protocol: str
    inputs: str
    width: int | None
    #: Ridge δ, of use for the protocol "ridge" alone.
    ridge: float
    #: Learning rate as it was given, of use online alone.
    rate: float | str
    #: Numbers of samples, None for those of a default curve, and whether it was a single number.
    samples: tuple[int, ...] | None
    is_single: bool
    #: Times of the flow, None for the default.
    times: tuple[float, ...] | None

    @property
    def settings(self) -> dict[str, object]:
        """Settings that a prediction and an experiment must share, ready for JSON; None where one has no use."""
        return {
            "kernel": self.kernel,
            "protocol": self.protocol,
            "inputs": self.inputs,
            "width": self.width,
            "ridge": self.ridge if self.protocol == "ridge" else None,
        }

    @property
    def solver(self) -> dict[str, object]:
        """Settings of the call that datasets store, ready for JSON."""
        return {"student": stored_link(self.link), **self.settings}

    def modes(self) -> KernelModes:
        """Return the modes of the kernel and of the teacher."""
        problem = self.problem
        teacher = problem.teacher.target or problem.teacher.units(problem.teacher_link)
        if self.width is not None:
            return feature_modes(self.link, teacher, problem.dimension)
        gaussian = self.inputs == "gaussian"
        return kernel_modes(self.link, teacher, problem.dimension, kernel=self.kernel, gaussian=gaussian)

    def learning_rate(self, trace: float) -> float:
        """Return η of online steps; ValueError unless it is below the limit 2/K(1), `trace` being K(1)."""
        share = share_of_limit(self.rate) if isinstance(self.rate, str) else None
        require(
            share is not None or not isinstance(self.rate, str),
            "Argument `learning_rate` must be a positive number, or a share of 2/K(1) such as '0.4x', but is "
            f"{shown(self.rate)}.",
        )
        limit = 2.0 / trace
        rate = checked_number(self.rate, "learning_rate", positive=True) if share is None else share * limit
        require(rate < limit, f"Argument `learning_rate` must be below 2/K(1) = {limit:.4g}, but is {rate:.4g}.")
        return rate


def kernel_question(
    link: object,
    *,
    kernel: str = "ntk",
    dimension: float | None = None,
    student: object = None,
    ridge: float | None = None,
    noise: float | None = None,
    protocol: str = "online",
    learning_rate: float | str | None = None,
    width: int | None = None,
    inputs: str = "sphere",
    samples: int | Sequence[int] | None = None,
    times: Sequence[float] | None = None,
) -> KernelQuestion:
    """Return the checked question; the arguments are those of `predict_kernel`."""
    for name, value, choices in (
        ("kernel", kernel, KERNELS), ("protocol", protocol, PROTOCOLS), ("inputs", inputs, INPUTS)
    ):  # fmt: skip
        check_choice(name, value, choices)
    problem, own_link = _problem_of(link, dimension, student, noise)
    checked_number(problem.label_noise, "noise", positive=False, maximum=LARGEST)
    takers: dict[str, tuple[object, str]] = {
        "ridge": (ridge, "ridge"), "learning_rate": (learning_rate, "online"), "times": (times, "flow")
    }  # fmt: skip
    for name, (number, taker) in takers.items():
        require(
            number is None or protocol == taker,
            f"Argument `{name}` must be absent for the protocol {protocol!r}, but is {shown(number)}.",
        )
    if inputs == "gaussian":
        require(width is None, f"Argument `width` must be absent for Gaussian inputs, but is {shown(width)}.")
        require(
            protocol != "online",
            "Argument `protocol` must be 'ridge' or 'flow' for Gaussian inputs, whose K(x, x) varies, but is 'online'.",
        )
        require(
            not problem.teacher.is_polynomial,
            "Argument `inputs` must be 'sphere' for a teacher that is a polynomial, but is 'gaussian'.",
        )
    features = None if width is None else checked_integer(width, "width", minimum=1)
    require(
        features is None or (kernel == "features" and protocol == "ridge"),
        "Argument `width` must be absent unless `kernel` is 'features' and `protocol` is 'ridge', but is "
        f"{shown(width)}; `dynamics.tangent_floor` has the tangent kernel of a finite network.",
    )
    require(samples is not None or protocol != "flow", "Argument `samples` must be given for the flow.", TypeError)
    is_single = samples is not None and np.ndim(samples) == 0
    counts = None if samples is None else [samples] if is_single else checked_list(samples, "samples")
    moments = None if times is None else checked_list(times, "times")
    for name, numbers in (("samples", counts), ("times", moments)):
        require(numbers != [], f"Argument `{name}` must hold at least one number, but is empty.")
    return KernelQuestion(
        problem=problem,
        link=own_link,
        kernel=kernel,
        protocol=protocol,
        inputs=inputs,
        width=features,
        ridge=checked_number(RIDGE if ridge is None else ridge, "ridge", positive=False, maximum=LARGEST),
        rate=RATE if learning_rate is None else learning_rate,
        samples=None if counts is None else tuple(checked_integer(n, "samples", minimum=1) for n in counts),
        is_single=is_single,
        times=None if moments is None else tuple(checked_number(t, "times", positive=True) for t in moments),
    )


def _problem_of(
    link: object, dimension: float | None, student: object, noise: float | None
) -> tuple[Problem, HermiteExpansion]:
    """Return the problem, of a link one direction of coefficient 1, and the link of the kernel."""
    if not isinstance(link, Problem):
        require(dimension is not None, "Argument `dimension` must be given for a link, but is absent.", error=TypeError)
        teacher_link = checked_link(link, "link")
        student_link = teacher_link if student is None else checked_link(student, "student")
        problem = Problem(
            activation=student_link,
            teacher=Teacher([1.0]),
            teacher_activation=teacher_link,
            width=1,
            dimension=checked_integer(dimension, "dimension", minimum=2),
            student="spherical",
            label_noise=0.0 if noise is None else checked_number(noise, "noise", positive=False),
        )
        return problem, student_link
    for name, value in (("dimension", dimension), ("noise", noise)):
        require(value is None, f"Argument `{name}` must be absent where a Problem is given, but is {shown(value)}.")
    check_fields(link, (), "for a kernel")
    require(link.dimension >= 2, f"Argument `problem` must have a dimension of at least 2, but has {link.dimension}.")
    biases = link.student.biases if isinstance(link.student, Student) else "none"
    require(
        student is not None or biases == "none",
        f"Argument `problem` must have a network without biases, which are outside the kernel, but has {biases} ones; "
        "a link that is given as student has none.",
    )
    return link, link.activation if student is None else checked_link(student, "student")


def predict_kernel(
    link: object,
    *,
    kernel: Literal["ntk", "features"] = "ntk",
    dimension: float | None = None,
    samples: int | Sequence[int] | None = None,
    student: object = None,
    ridge: float | None = None,
    noise: float | None = None,
    protocol: Literal["online", "ridge", "flow"] = "online",
    learning_rate: float | str | None = None,
    times: Sequence[float] | None = None,
    width: int | None = None,
    inputs: Literal["sphere", "gaussian"] = "sphere",
) -> xr.Dataset:
    r"""Predict the test error of a kernel that learns the same teacher: the lazy twin of a network.

    .. math:: K(x, x') = g(s) + s g'(s), \quad g(s) = \sum_j c_j^2 s^j, \quad s = x \cdot x'/d, \qquad
       K = \sum_l b_l P_l, \quad \lambda_l = b_l/N_l

    on \|x\| = √d, with the Hermite coefficients c_j of the link of the kernel, the Legendre polynomials P_l in d
    dimensions, and the numbers N_l of harmonics; the features alone have K = g. The teacher enters by its mean square
    v_l² in each degree alone. Online, R_l is exact at every d:

    .. math:: R_l \leftarrow R_l (1 - 2\eta\lambda_l) + \eta^2 b_l \lambda_l \Big(\sum_m R_m + \tau^2\Big),
       \quad R_l(0) = v_l^2, \qquad \eta < 2/K(1)

    Parameters
    ----------
    link : str, dict, sympy expression, callable, HermiteExpansion or Problem
        Teacher of one direction, anything that `hermite.expand` takes; or a `Problem` with isotropic inputs and any
        teacher, instead of `dimension` and `noise` too.
    kernel : {"ntk", "features"}
        The tangent kernel of a wide two-layer network of which both layers are trained, or that of its features,
        σ(w·x) with w ~ N(0, I/d), of which the second layer alone is.
    dimension : int, optional
        Input dimension d ≥ 2.
    samples : int or sequence of int, optional
        Numbers n of samples; by default 40 numbers until a hundredth of the error is left.
    student : link, optional
        Link of the kernel; by default that of the student of the problem, or the teacher's link. Needed for a network
        with biases.
    ridge : float, optional
        δ ≥ 0 on the matrix K(x_i, x_j), by default 1e-3; for the protocol "ridge".
    noise : float, optional
        Standard deviation τ of Gaussian noise on the labels, by default 0.
    protocol : {"online", "ridge", "flow"}
        Steps f ← f + η (y − f(x)) K(x, ·), one fresh sample each; ridge regression on n samples; or the flow
        f' = K(·, X)(y − f)/n on n samples. The last two are limits of large n and d.
    learning_rate : float or str, optional
        η of online steps, or a share of its limit 2/K(1) such as "0.4x", the default.
    times : sequence of float, optional
        Times t > 0 of the flow; by default 40 around those at which it learns the degrees of the teacher.
    width : int, optional
        Number m of random features σ(w·x)/√m, w uniform on the unit sphere; by default infinitely many.
    inputs : {"sphere", "gaussian"}
        Uniform on \|x\| = √d, or N(0, I_d), for ridge regression and flow.

    Returns
    -------
    Dataset
        `test_error(samples)`, E(f − f*)² without the noise (`(samples, time)` of a flow); `degree_error` by degree too,
        except at finite width; by degree `kernel_eigenvalue` λ_l (on Gaussian inputs the largest), `teacher_by_degree`
        v_l², and `degree_samples`, after which half of the degree is left; `samples_to_level(loss_level)`, after which
        the error is ½, .1 and .01 of its start (of no flow). Infinite: never; NaN: beyond 1e18. For a single number of
        samples these have no dimension `samples`. Attributes: `kernel_trace` K(1) (on Gaussian inputs its mean),
        `lost_error`, the part of E f*² that the kernel never learns, `error_floor` of endless samples, `learning_rate`
        and its limit, and the settings.

    Raises
    ------
    TypeError, ValueError
        One sentence: what must hold, what was given. Refused are inputs with a spectrum, a width beside Gaussian
        inputs, links with jumps for "ntk", and networks with biases unless `student` is given.

    Examples
    --------
    >>> lazy = predict_kernel("he4", dimension=32, samples=[1000, 100_000], student="relu", protocol="ridge")
    >>> lazy.test_error.values.round(3).tolist(), f"{float(lazy.samples_to_level[0]):.3g}"
    ([0.855, 0.21], '6.04e+04')
    >>> blind = predict_kernel("he3", dimension=32, samples=10, student="relu")  # relu sees no odd degree above 1
    >>> round(blind.attrs["lost_error"], 3), float(blind.samples_to_level[0])
    (0.763, inf)
    """
    question = kernel_question(
        link, kernel=kernel, dimension=dimension, student=student, ridge=ridge, noise=noise, protocol=protocol,
        learning_rate=learning_rate, width=width, inputs=inputs, samples=samples, times=times,
    )  # fmt: skip
    curves = KernelCurves(question)
    values, coords = curves.constants(), dict[str, object](degree=np.arange(curves.last + 1))
    if protocol == "flow":
        moments = curves.default_times() if question.times is None else np.array(question.times)
        counts = question.samples or ()
        errors = np.array([curves.flow(n, moments) for n in counts])
        values |= {"test_error": errors.sum(axis=-1), "degree_error": errors[..., :-1]}
        coords["time"] = moments
    else:
        values |= curves.crossings()
        counts = question.samples or curves.default_samples(values["samples_to_level"])
        values["test_error"], by_degree = curves.errors(np.array(counts, dtype=np.float64))
        values |= {} if by_degree is None else {"degree_error": by_degree}
        coords["loss_level"] = np.array(LEVELS)
    dataset = make_dataset(
        values,
        problem=question.problem,
        title=f"Error of the kernel '{kernel}' of {question.link.name}, inputs {INPUTS_IN_WORDS[inputs]}",
        coords={**coords, "samples": np.array(counts)},
        solver={"answer": ANSWER, **question.solver},
        attributes={"answer": ANSWER, "references": REFERENCES, **curves.attributes()},
        variables=kernel_variables(protocol),
    )
    return dataset.isel(samples=0) if question.is_single else dataset


def check_kernel(problem: Problem, kernel: str) -> None:
    """Raise ValueError unless a problem has a kernel of this name that can be trained online on the sphere."""
    question = kernel_question(problem, kernel=kernel)
    kernel_weights(question.link, 1.0, kernel)


def with_kernel(answer: xr.Dataset, kernel: str) -> xr.Dataset:
    """Return an answer with the curve of the kernel of its student beside it: online, on the sphere, with its noise.

    Added are `kernel_error(kernel_samples)`, E(f − f*)², and attributes that name the kernel, its link and its learning
    rate, and hold the samples to `LEVELS`. ValueError is raised for problems without such a kernel.
    """
    curve = predict_kernel(Problem.from_dataset(answer), kernel=kernel)  # type: ignore[arg-type]
    levels = dict(zip(map(str, LEVELS), curve["samples_to_level"].values.tolist(), strict=True))
    labels = [VARIABLES[name].labels for name in ("kernel_samples", "kernel_error")]
    return (
        answer.assign_coords(kernel_samples=("kernel_samples", curve["samples"].values, labels[0]))
        .assign(kernel_error=("kernel_samples", curve["test_error"].values, labels[1]))
        .assign_attrs(
            kernel=kernel,
            kernel_link=curve.attrs["kernel_link"],
            kernel_rate=curve.attrs["learning_rate"],
            kernel_levels=json.dumps({level: _as_stored(count) for level, count in levels.items()}),
        )
    )


def _as_stored(count: float) -> float | str | None:
    """Return a number of samples ready for JSON: None for never, "nan" for one beyond those that are looked at."""
    return None if np.isinf(count) else "nan" if np.isnan(count) else count


class KernelCurves:
    """Errors of one question by number of samples, from the modes of its kernel."""

    def __init__(self, question: KernelQuestion) -> None:
        self.question, self.modes = question, question.modes()
        self.noise, self.whole = question.problem.label_noise, float(self.modes.target.sum())
        self.rate = question.learning_rate(self.modes.trace) if question.protocol == "online" else None
        #: Degrees that the teacher has, and the last that is told apart.
        has_part = (self.modes.target > LEAST_PART * self.whole) & (self.modes.degree <= LAST_DEGREE)
        self.degrees = np.unique(self.modes.degree[has_part])
        self.last = max(int(self.degrees.max(initial=0)), FEWEST_DEGREES)
        self._target = self.modes.by_degree(self.modes.target, self.last)

    def errors(self, samples: Array) -> tuple[Array, Array | None]:
        """Return the test error (n,) and its parts by degree (n, degrees); None where the width is finite."""
        question, modes = self.question, self.modes.limited(float(samples.max()))
        if question.width is not None:
            return ridge_error(modes, samples, question.ridge, self.noise, question.width), None
        if self.rate is None:
            by_mode = ridge_error(modes, samples, question.ridge, self.noise)
        else:
            by_mode = online_error(modes, samples.astype(np.int64), self.rate, self.noise)
        return by_mode.sum(axis=1), modes.by_degree(by_mode, self.last)

    def flow(self, samples: int, times: Array) -> Array:
        """Return the parts of the test error by degree and, last, all further ones, (times, degrees + 1)."""
        modes = self.modes.limited(samples)
        by_mode = flow_error(modes, samples, times, self.noise)
        parts = modes.by_degree(by_mode, self.last)
        return np.concatenate([parts, (by_mode.sum(axis=1) - parts.sum(axis=1))[:, None]], axis=1)

    def constants(self) -> dict[str, Array]:
        """Return what does not depend on the number of samples, by degree."""
        modes, degrees = self.modes, np.arange(self.last + 1)
        largest = np.array([modes.eigenvalue[modes.degree == ell].max(initial=0.0) for ell in degrees])
        return {"kernel_eigenvalue": largest, "teacher_by_degree": modes.by_degree(modes.target, self.last)}

    @property
    def floor(self) -> float:
        """Error that endless samples leave."""
        question = self.question
        if self.rate is not None:
            return online_floor(self.modes, self.rate, self.noise)
        if question.width is None:
            return self.modes.lost
        return float(ridge_error(self.modes, np.array([ENDLESS]), question.ridge, self.noise, question.width)[0])

    def crossings(self) -> dict[str, Array]:
        """Return the samples until the error, and half of each degree, is left; inf for never, NaN if not found."""
        most = MOST[self.question.protocol]
        points = np.unique(np.round(np.geomspace(1.0, most, int(PER_DECADE * np.log10(most)) + 1)))
        targets = np.concatenate([LEVELS, np.full(self._told.size, HALF)])
        coarse = self._shares(points)
        at = np.argmax(coarse <= targets, axis=0)
        brackets = [np.geomspace(points[i - 1], points[i], ZOOM) for i in at.tolist() if i > 0]
        points = np.unique(np.concatenate([points, *brackets]))
        points = np.unique(np.round(points)) if self.rate is not None else points
        shares = self._shares(points)
        counts = np.array(
            [_first(points, column, level) for column, level in zip(shares.T, targets.tolist(), strict=True)]
        )
        counts = np.where(np.isnan(counts) & (self._floors() >= targets), np.inf, counts)
        by_degree = np.full(self.last + 1, np.nan)
        by_degree[self._told] = counts[len(LEVELS) :]
        return {"samples_to_level": counts[: len(LEVELS)], "degree_samples": by_degree}

    @property
    def _told(self) -> Integers:
        """Degrees of which the error is known apart: those of the teacher, none at finite width."""
        return self.degrees if self.question.width is None else self.degrees[:0]

    def _shares(self, samples: Array) -> Array:
        """Return the part of E f*² that is left, and that of each degree, (n, 1 for each of `LEVELS` and degrees)."""
        total, parts = self.errors(samples)
        columns = [total / self.whole] * len(LEVELS)
        if parts is not None:
            columns += list((parts[:, self._told] / self._target[self._told]).T)
        return np.stack(columns, axis=1)

    def _floors(self) -> Array:
        """Return what endless samples leave of E f*², for each of `LEVELS`, and of each degree."""
        floor, modes = self.floor, self.modes
        lost = modes.by_degree(np.where(modes.eigenvalue == 0.0, modes.target, 0.0), self.last)
        if self.rate is not None:
            size = modes.by_degree(modes.eigenvalue * modes.multiplicity, self.last)
            lost = lost + 0.5 * self.rate * size * (floor + self.noise**2)
        return np.concatenate([np.full(len(LEVELS), floor / self.whole), lost[self._told] / self._target[self._told]])

    def default_samples(self, levels: Array) -> tuple[int, ...]:
        """Return up to 40 numbers of samples over five decades, to twice the last of `levels`, samples to `LEVELS`."""
        last = 2.0 * float(levels[np.isfinite(levels)].max(initial=self.question.problem.dimension))
        return tuple(map(int, np.unique(np.round(np.geomspace(max(1e-5 * last, 1.0), last, POINTS)))))

    def default_times(self) -> Array:
        """Return 40 times around 1/λ of the first and the last degree of the teacher that the kernel sees."""
        modes = self.modes
        seen = modes.eigenvalue[(modes.target > LEAST_PART * self.whole) & (modes.eigenvalue > 0.0)]
        seen = seen if seen.size else modes.eigenvalue[:1]
        return np.geomspace(0.03 / seen.max(), 30.0 / seen.min(), POINTS)

    def attributes(self) -> dict[str, object]:
        """Return the attributes of the dataset."""
        question, modes = self.question, self.modes
        return {
            "kernel_link": question.link.name,
            **question.settings,
            "kernel_trace": modes.trace,
            "lost_error": modes.lost,
            "error_floor": None if question.protocol == "flow" else self.floor,
            "learning_rate": self.rate,
            "learning_rate_limit": None if self.rate is None else 2.0 / modes.trace,
        }


def _first(points: Array, values: Array, level: float) -> float:
    """Return where values first fall to a level, between points by a power law; NaN if they do not."""
    at = int(np.argmax(values <= level))
    if values[at] > level:
        return np.nan
    if at == 0:
        return float(points[0])
    x, y = np.log(points[at - 1 : at + 1]), values[at - 1 : at + 1]
    return float(np.exp(x[0] + (x[1] - x[0]) * (y[0] - level) / (y[0] - y[1])))
