"""The spherical network of finite width, its linearised distance from the mean field, and one neuron's correlation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Unpack

import numpy as np
from numpy.typing import NDArray

from dynamics.cores import blas_threads_for
from dynamics.equations.losses import teacher_term
from dynamics.equations.mean_field import checked_particles, warn_of_mixture
from dynamics.problem import Optimizer, Problem, check_problem, is_correlation
from dynamics.problem.checks import check_memory, checked_integer, checked_number, checked_tolerances, require
from dynamics.problem.saved_times import SaveAt, checked_save_at
from dynamics.problem.start import ARRAYS_OF_START
from dynamics.problem.student import SPHERICAL
from dynamics.runs.dataset import make_dataset, no_prediction_values, prediction_attributes, prediction_values
from dynamics.runs.trackers import Soundness
from dynamics.solve.arguments import Shared, integrated
from dynamics.solve.integration import AnswerCall, Integration, Method, PlainMethod, integrate
from dynamics.solve.mean_field import LOSS_LEVELS, default_mean_field_times, solve_mean_field
from dynamics.solve.steps import StepSettings, check_needless, sgd_step
from dynamics.theory.prediction import default_times, predict, sum_formula_loss
from hermite.arrays import Array
from hermite.text.messages import shown

if TYPE_CHECKING:
    import xarray as xr

    from dynamics.equations.correlation import CorrelationSystem
    from dynamics.equations.spherical import SphericalStepSystem, SphericalSystem
    from dynamics.problem.rates import Schedule


@integrated("spherical", Shared, method="explicit")
def solve_spherical(
    problem: Problem,
    *,
    learning_rate: float | str | None = None,
    step_theory: Literal["infinite-d"] = "infinite-d",
    batch_size: int = 1,
    **shared: Unpack[Shared],
) -> xr.Dataset:
    r"""Integrate the spherical network of finite width, exactly, in its unit vectors.

    .. math:: f(x) = \frac1m \sum_i \sigma(w_i\cdot x), \quad |w_i| = 1, \qquad
       w_i' = (I - w_i w_i^T) \Big[ \sum_p a_p\, g^{*\prime}(w_i\cdot\theta_p)\, \theta_p
       - \frac1m \sum_j g'(w_i\cdot w_j)\, w_j \Big],

    the flow of ½ E(f − f*)² with velocities scaled by the width (arXiv:2504.13110), of which `solve_mean_field` is the
    limit m → ∞. With a learning rate η, the mean motion of C = WΘᵀ and G = WWᵀ under SGD on B samples per step
    (arXiv:2003.10409), tangential steps scaled by the width and back to the sphere, at γ = η d as d → ∞ (Phys. Rev. E
    52, 4225): the flow, and with ē = f − f*

    .. math:: -\frac{\gamma}{2B} V_{ii} C_{ip}, \qquad
       \frac{\gamma}{B} \big[V_{ij} - \tfrac12 G_{ij} (V_{ii} + V_{jj})\big], \qquad
       V_{ij} = E[(\bar e^2 + \tau^2)\, \sigma'_i \sigma'_j].

    Parameters
    ----------
    problem : Problem
        With ``student="spherical"``; any teacher. Links that are not polynomials enter as their truncated series.
    save_at : SaveAt, optional
        Saved times. Default: as `solve_mean_field`.
    learning_rate : float or str, optional
        As in `solve_overlaps`. Needs a polynomial link (up to degree 12) and teacher link, or 'erf' and a teacher of
        'erf', 'relu', 'step', 'sign' or a polynomial.
    step_theory : {"infinite-d"}
        The limit d → ∞ at fixed η d: errors at finite d fall like 1/d.
    batch_size : int
        Number B of samples per step, far below d.

    Returns
    -------
    Dataset
        `loss(time)`, E(f − f*)²; `loss_level_time(loss_level)`, when it falls below a fraction of E f*²; per direction
        `max_overlap(time, direction)` and `emergence_time`, first max_i C_ip² ≥ `emergence_level` (C > 0 for odd
        information exponent); `learned_mass(time, direction)`, Σ_i g_3(C_ip)/(m g_3(1)) with g_3 as in
        `solve_overlaps`, and `learned_time`, when it reaches a_p/2 (NaN where the link has no degree from 3 on); "full"
        adds `teacher_overlap(time, neuron, direction)` and `neuron_vector(time, neuron, flow_axis)`, the neurons in
        D = min(d, r + m) coordinates, the teacher's axes first; with a learning rate, of which only overlaps are known,
        `student_overlap(time, neuron, neuron_2)` instead, and always `gram_margin(time)`. Dimensionless.

    Warns
    -----
    UserWarning
        If Σ a_p is not 1, so that no network fits the teacher.

    Notes
    -----
    Tolerances are of the neurons' components, or of C and G. One evaluation costs 4 m² D operations, on one thread: 2
    ms at m = 1024, d = 16; with a learning rate m² (m + P)² operations times a number that grows with the degree.

    Examples
    --------
    >>> from dynamics import Problem, SaveAt, Teacher
    >>> problem = Problem(activation="he4", teacher=Teacher([1.0]), width=16, dimension=16, student="spherical")
    >>> flow = solve_spherical(problem, save_at=SaveAt.at([0.0, 2.0, 10.0]), progress=False)
    >>> flow.loss.values.round(3).tolist()
    [1.062, 0.631, 0.37]
    """
    return integrate(
        "spherical",
        spherical_integration,
        problem,
        shared,
        learning_rate=learning_rate,
        step_theory=step_theory,
        batch_size=batch_size,
    )


def spherical_integration(
    run: AnswerCall, *, learning_rate: object, step_theory: str, batch_size: object
) -> Integration:
    """Return the integration of a spherical network, whose neurons all keep length 1, for the arguments of a run.

    `learning_rate` is None for the gradient flow, or the η of SGD with `batch_size` samples per step; `step_theory`
    must be "infinite-d", the only one that this student has.
    """
    problem, P = run.problem, run.problem.num_directions
    saved_times = run.saved_times(lambda: default_mean_field_times(problem))
    step = sgd_step(problem, learning_rate, step_theory, batch_size)
    rate = step.learning_rate
    require(
        step.varying is None,
        "Argument `learning_rate` must be one number for a spherical student with the squared error, but is "
        f"{step.varying!r}.",
    )
    require(
        step_theory == "infinite-d",
        "Argument `step_theory` must be 'infinite-d' for a spherical student, whose mean step at finite d is no finite "
        f"sum because it divides by a length, but is {shown(step_theory)}.",
    )
    warn_of_mixture(problem)
    system, estimates = _system(problem, step), run.estimates(run.method)

    def halved(problem: Problem) -> tuple[Method, Callable[[Array], float]]:
        coarse = _system(problem, step)
        return PlainMethod(coarse, run.method, run.atol), coarse.loss

    coords = run.neurons() if run.keep == "full" else {}
    if rate is None:
        coords.pop("neuron_2", None)
    return Integration(
        title="Spherical network of finite width" + ("" if rate is None else " under SGD of a finite learning rate"),
        saved_times=saved_times,
        method=PlainMethod(system, run.method, run.atol),
        observe=system.observer(run.keep),
        start=system.initial_state,
        events={"loss_level_time": len(LOSS_LEVELS), "emergence_time": P, "learned_time": P},
        coords={"loss_level": np.array(LOSS_LEVELS), **coords},
        constants=no_prediction_values(P),
        settings=step.arguments,
        attributes=lambda _: {"teacher_loss": system.teacher_loss(), **step.attributes},
        notes=["Spherical networks have no greedy prediction of times."],
        sound=Soundness(run.rtol, system.teacher_loss(), falls=rate is None),
        loss=system.loss if estimates else None,
        cut=run.cut(halved) if estimates and rate is None else None,
        # The products of a strip with all neurons are too thin for a second thread.
        threads=lambda: blas_threads_for(0),
    )


def _system(problem: Problem, step: StepSettings) -> SphericalSystem | SphericalStepSystem:
    """Return the equations of the gradient flow, or those of SGD if `step` has a learning rate."""
    from dynamics.equations.spherical import SphericalStepSystem, SphericalSystem

    if step.learning_rate is None:
        return SphericalSystem(problem, LOSS_LEVELS)
    return SphericalStepSystem(problem, LOSS_LEVELS, step.learning_rate, step.batch_size)


def coupled_problem(problem: Problem, width: int, seed: int) -> Problem:
    """Return the same question for a spherical network of m = `width` neurons that start from one Gaussian matrix.

    `seed` draws it, N(0, 1) in d columns, scaled to rows of length 1: neuron i is the same for every width above i.

    Examples
    --------
    >>> from dynamics import Problem, Teacher
    >>> problem = Problem(activation="he4", teacher=Teacher([1.0]), width=1, dimension=16, student="spherical")
    >>> narrow, wide = (coupled_problem(problem, width, seed=0).start() for width in (4, 8))
    >>> bool((narrow.teacher_overlap == wide.teacher_overlap[:4]).all())
    True
    """
    check_problem(problem, SPHERICAL)
    shape = (checked_integer(width, "width", minimum=1), problem.dimension)
    check_memory("width", shape[0], ARRAYS_OF_START * shape[0] * shape[1])
    weights = np.random.default_rng(checked_integer(seed, "seed", minimum=0)).standard_normal(shape)
    weights /= np.linalg.norm(weights, axis=1, keepdims=True)
    return replace(problem, width=width, seed=0, initial_weights=weights, initial_overlaps=None)


def solve_coupling(
    problem: Problem,
    *,
    save_at: SaveAt | None = None,
    particles: int | None = None,
    largest_step: float = 0.1,
    rtol: float = 1e-6,
    atol: float = 1e-8,
) -> xr.Dataset:
    r"""Integrate the linearised distance of a network of finite width from the neurons that follow its mean field.

    .. math:: \Delta_i' = D_i \Delta_i - \frac1m\sum_j H_{ij} \Delta_j + \varepsilon_i, \qquad \Delta_i(0) = 0,

    where D_i is the derivative of a neuron's velocity in its position, H_ij the interaction and ε_i the fluctuation of
    the field of m neurons (Glasgow, Wu and Bruna, arXiv:2504.13110).

    Parameters
    ----------
    problem : Problem
        With ``student="spherical"``; its own m neurons are those followed, see `coupled_problem`.
    save_at : SaveAt, optional
        Saved times. Default: those of `solve_mean_field`.
    particles : int, optional
        Number of particles of the mean field. Default: 8192 for one axis of the teacher; must be given for more, where
        they are random and should be many times m.
    largest_step : float
        Largest step of the classical Runge–Kutta method of order 4, in flow time.
    rtol, atol : float
        Accuracy of the mean field, as for `solve_mean_field`.

    Returns
    -------
    Dataset
        `neuron_gap(time, neuron, flow_axis)`, Δ in D = min(d, r + m) coordinates, the teacher's axes first;
        `linear_error(time)`, √m times the root mean square of |Δ_i|; `noise_size(time)`, the same of ε;
        `largest_growth(time)`, the largest local Hessian λ of the followers; `linear_error_bound(time)`, the solution
        of b' = max(λ, 0) b + noise_size, which is above `linear_error`. Dimensionless.

    Notes
    -----
    A step costs 32 m² D operations, and memory is 8 m² numbers. The bound grows as the exponential of ∫ λ dt, because
    it lets every neuron grow as the fastest one does at each instant.

    Examples
    --------
    >>> from dynamics import Problem, SaveAt, Teacher
    >>> problem = Problem(activation="he4", teacher=Teacher([1.0]), width=1, dimension=16, student="spherical")
    >>> found = solve_coupling(coupled_problem(problem, 16, seed=0), save_at=SaveAt.at([0.0, 1.0]), particles=1024)
    >>> dict(found.neuron_gap.sizes), bool(found.linear_error[-1] < found.linear_error_bound[-1])
    ({'time': 2, 'neuron': 16, 'flow_axis': 16}, True)
    """
    check_problem(problem, SPHERICAL)
    saved_times = default_mean_field_times(problem) if save_at is None else checked_save_at(save_at, save_at)
    largest_step = checked_number(largest_step, "largest_step", positive=True)
    rtol, atol = checked_tolerances(rtol, atol)
    axes = problem.teacher.span
    require(
        particles is not None or axes <= 1,
        f"Argument `particles` must be given for a teacher that spans {axes} axes, but is None.",
    )
    count = checked_particles(problem, particles, "random")
    settings = {"particles": count, "largest_step": largest_step, "rtol": rtol, "atol": atol}
    nodes, saved = _nodes(saved_times.times, largest_step)
    return make_dataset(
        {name: values[saved] for name, values in _integrated(problem, nodes, count, rtol, atol).items()},
        problem=problem,
        title="Linearised distance of a spherical network from its mean field",
        coords={"time": saved_times.times, "neuron": np.arange(problem.width)},
        solver={"answer": "coupling", **settings},
        attributes={"answer": "coupling", **settings},
    )


def _integrated(problem: Problem, nodes: Array, particles: int, rtol: float, atol: float) -> dict[str, Array]:
    """Return the linearised distance of m neurons from their mean-field law, and a bound, at the times `nodes` (n,).

    The mean field is followed with `particles` particles at the tolerances `rtol` and `atol`. Keys of the result are
    "neuron_gap" (n, m, D), the distance in coordinates; "linear_error" (n,), its Frobenius norm; "noise_size" (n,), the
    norm of the term that drives it; "largest_growth" (n,), the rate at which it can grow; and "linear_error_bound"
    (n,). The linear equation is integrated by the Runge-Kutta method of order 4.
    """
    from dynamics.equations.spherical import LinearisedCoupling, followers_in_space, make_particle_system
    from dynamics.equations.vectors import unit_vectors

    start, _ = unit_vectors(problem)
    tracers = start[:, : problem.teacher.span]
    # The method of order 4 looks at the middle of every step.
    times = SaveAt.at(np.sort(np.concatenate([nodes, 0.5 * (nodes[1:] + nodes[:-1])])))
    isotropic = replace(problem, initial_weights=None, initial_overlaps=None)
    law = solve_mean_field(
        isotropic,
        tracers=tracers,
        save_at=times,
        particles=particles,
        keep="summary",
        rtol=rtol,
        atol=atol,
        progress=False,
    )
    projections, moments = law["tracer_projection"].values, law["law_moment"].values
    system = make_particle_system(problem, tracers)

    def equation(k: int) -> LinearisedCoupling:
        return LinearisedCoupling(system, followers_in_space(start, projections[k : k + 1])[0], moments[k])

    start_of_step = equation(0)
    gaps = np.zeros((nodes.size, *start_of_step.noise.shape))
    bound, noise, growth = np.zeros((3, nodes.size))
    noise[0], growth[0] = np.linalg.norm(start_of_step.noise), start_of_step.growth
    for n, h in enumerate(np.diff(nodes)):
        middle, end_of_step = equation(2 * n + 1), equation(2 * n + 2)
        rate_1 = start_of_step.rate(gaps[n])
        rate_2 = middle.rate(gaps[n] + 0.5 * h * rate_1)
        rate_3 = middle.rate(gaps[n] + 0.5 * h * rate_2)
        gaps[n + 1] = gaps[n] + h / 6.0 * (
            rate_1 + 2.0 * rate_2 + 2.0 * rate_3 + end_of_step.rate(gaps[n] + h * rate_3)
        )
        rates = np.array([max(at.growth, 0.0) for at in (start_of_step, middle, end_of_step)])
        sizes = np.array([np.linalg.norm(at.noise) for at in (start_of_step, middle, end_of_step)])
        # b(h) = e^∫λ b + ∫ e^(growth) ε, growth the integral of λ from t to h; both integrals by Simpson's rule.
        growth_left = h * np.array([rates @ [1.0, 4.0, 1.0], rates @ [-0.25, 2.0, 1.25], 0.0]) / 6.0
        bound[n + 1] = np.exp(growth_left[0]) * bound[n] + h * (np.exp(growth_left) * sizes) @ [1.0, 4.0, 1.0] / 6.0
        noise[n + 1], growth[n + 1], start_of_step = sizes[2], end_of_step.growth, end_of_step
    return {
        "neuron_gap": gaps,
        "linear_error": np.linalg.norm(gaps, axis=(1, 2)),
        "noise_size": noise,
        "largest_growth": growth,
        "linear_error_bound": bound,
    }


def _nodes(times: Array, largest_step: float) -> tuple[Array, NDArray[np.intp]]:
    """Return nodes from 0 to the last of `times`, at most `largest_step` apart, and the indices of `times` in them."""
    stops = times if times[0] == 0.0 else np.concatenate([[0.0], times])
    counts = np.maximum(np.ceil(np.diff(stops) / largest_step), 1.0).astype(np.intp)
    parts = [np.linspace(a, b, n, endpoint=False) for a, b, n in zip(stops, stops[1:], counts, strict=False)]
    places = np.concatenate([[0], np.cumsum(counts)])
    return np.concatenate([*parts, stops[-1:]]), places[stops.size - times.size :]


@integrated("correlation", Shared)
def solve_correlation(
    problem: Problem,
    *,
    learning_rate: float | str | Schedule | None = None,
    step_theory: Literal["finite-d"] | None = None,
    batch_size: int = 1,
    optimizer: Optimizer | str | None = None,
    **shared: Unpack[Shared],
) -> xr.Dataset:
    r"""Integrate the overlap C = w·θ of one spherical neuron that descends −E[f* σ(w·x)], smoothed or not.

    .. math:: C' = a\, g_\lambda'(C)\, (1 - C^2), \qquad
       g_\lambda = \sum_k c_k c^*_k (1+\lambda^2)^{-k/2} \sum_j \binom{k}{2j} C^{k-2j} \lambda^{2j} (1-C^2)^j \mu_j,
       \quad \mu_j = \prod_{i<j} \frac{2i+1}{d-1+2i},

    the flow averaged over neurons (w + λz)/√(1 + λ²), z uniform on the unit sphere orthogonal to w (arXiv:2305.10633;
    2003.10409 without smoothing); exact at every d. With a learning rate η, the mean motion under steps
    w ← (w + η u)/|w + η u| to second order in η, u the mean of f* ψ x_⊥ over B samples,

    .. math:: C' = D - \frac{\eta}{2} C \Big[\frac1B E[y^2 \psi^2 r^2]
       + \Big(1 - \frac1B\Big) \frac{D^2}{1 - C^2}\Big], \qquad D = a\, g_\lambda'(C) (1 - C^2),

    with ψ the derivative of the smoothed link, y the noisy label and r² = |x_⊥|²; the means are exact at every d. For
    `ZerothOrder` with K directions the bracket is (d − 1)/K E|G|² + (1 + 1/K) E|G_⊥|², G the mean of y σ' x.

    Parameters
    ----------
    problem : Problem
        With ``student="spherical"``, ``objective="correlation"``, one neuron and one direction; any λ = `smoothing`.
        A link that is smoothed has a degree of at most 12, or a series cut there by ``order=12``.
    save_at : SaveAt, optional
        Saved times. Default: 150 geometric times from a tenth of the emergence to 2.5 times the learned time.
    learning_rate, batch_size
        As in `solve_overlaps`; text such as "0.1x" is that share of the largest rate that leads to the direction,
        `dynamics.theory.largest_rate`. Needs polynomial links of degree at most 12.
    step_theory : {"finite-d"}, optional
        With a learning rate: the means of a step are those at the problem's own d.
    optimizer : dynamics.ZerothOrder, optional
        What a step does with the gradient; plain SGD by default. It needs λ = 0, in the limit without smoothing.

    Returns
    -------
    Dataset
        `loss(time)`, E(f − f*)² of f = σ(w·x), which is not what is descended, and `predicted_loss(time)`, that of the
        start until the predicted emergence and of C = 1 afterwards; `max_overlap(time, direction)` and
        `learned_mass(time, direction)`, g_3(C)/g_3(1) with g_3 as in `solve_overlaps`; "full" adds
        `teacher_overlap(time, neuron, direction)`. `emergence_time`, first C² ≥ `emergence_level` (C > 0 for odd
        information exponent), `learned_time`, first g_3(C)/g_3(1) ≥ a/2 (NaN where the link has no degree from 3 on),
        and both as the flow predicts them by quadrature. Dimensionless, as is artanh C, of which the tolerances are.

    Examples
    --------
    >>> from dynamics import Problem, Teacher
    >>> given = {"width": 1, "dimension": 64, "student": "spherical", "objective": "correlation"}
    >>> problem = Problem(activation="he3", teacher=Teacher([1.0]), **given)
    >>> flow = solve_correlation(problem, progress=False)
    >>> flow.emergence_time.values.round(2).tolist(), flow.predicted_emergence_time.values.round(2).tolist()
    ([20.5], [20.5])
    """
    return integrate(
        "correlation",
        correlation_integration,
        problem,
        shared,
        learning_rate=learning_rate,
        step_theory=step_theory,
        batch_size=batch_size,
        optimizer=optimizer,
    )


def correlation_integration(
    run: AnswerCall, *, learning_rate: object, step_theory: object, batch_size: object, optimizer: object
) -> Integration:
    """Return the integration of the overlap of one neuron with one direction under the objective "correlation".

    `learning_rate` is None for the flow; `batch_size` is in samples per step, and `optimizer` None for plain SGD.
    """
    problem = run.problem
    step = correlation_step(problem, learning_rate, step_theory, batch_size, optimizer)
    prediction, stepped = predict(problem), step.learning_rate is not None
    step, saved_times = step.planned(run, lambda: default_times(problem, prediction))
    system = correlation_system(problem, step)
    flow, summary = step.method(system, run, saved_times), system.observer("summary")
    return Integration(
        title="Correlation of one neuron and one direction" + (" under steps of SGD" if stepped else ""),
        saved_times=saved_times,
        method=flow,
        observe=system.observer(run.keep),
        start=system.initial_state,
        events={"emergence_time": 1, "learned_time": 1},
        coords=({"neuron": np.arange(1)} if run.keep == "full" else {}) | step.coords(saved_times),
        constants={
            **prediction_values(prediction),
            "predicted_loss": sum_formula_loss(problem, prediction, saved_times.times),
        },
        settings=step.arguments,
        attributes=lambda _: prediction_attributes(prediction) | step.attributes,
        notes=prediction.notes,
        sound=Soundness(run.rtol, teacher_term(problem), falls=not stepped and problem.smoothing == 0.0),
        loss=(lambda state: float(summary(state)["loss"])) if run.estimates(run.method) else None,
    )


def correlation_step(
    problem: Problem, learning_rate: object, step_theory: object, batch_size: object, optimizer: object = None
) -> StepSettings:
    """Return the checked settings of steps; raise ValueError for a problem or steps that the equations do not describe.

    `learning_rate` None stands for the flow; `step_theory` must be None or "finite-d".
    """
    require(is_correlation(problem), "Argument `problem` must have `objective` 'correlation' here, but has 'squared'.")
    require(
        step_theory in (None, "finite-d"),
        f"Argument `step_theory` must be 'finite-d' for the objective 'correlation', but is {shown(step_theory)}.",
    )
    step = sgd_step(problem, learning_rate, None if learning_rate is None else "finite-d", batch_size, optimizer)
    check_needless("step_theory", step_theory, None, step.learning_rate is not None)
    return step


def correlation_system(problem: Problem, step: StepSettings) -> CorrelationSystem:
    """Return the equations of a flow or of steps."""
    from dynamics.equations.correlation import CorrelationSystem

    return CorrelationSystem(problem, step.learning_rate or 0.0, step.batch_size, step.optimizer, step.table)


def check(problem: Problem, options: Mapping[str, object]) -> None:
    """Refuse steps that the equations do not describe, and a link whose means are unknown."""
    names = "learning_rate", "step_theory", "batch_size", "optimizer"
    correlation_system(problem, correlation_step(problem, *(options[name] for name in names)))
