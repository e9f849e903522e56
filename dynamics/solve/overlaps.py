"""The coupled overlap flow, the mean motion of overlaps under steps of a finite learning rate, and committees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np

from dynamics.commands.options import Values
from dynamics.cores import blas_threads_for
from dynamics.equations.losses import teacher_term
from dynamics.problem import Problem, is_correlation
from dynamics.problem.checks import check_choice
from dynamics.problem.problem import check_flow_memory
from dynamics.runs.dataset import no_prediction_values, prediction_attributes, prediction_values
from dynamics.runs.trackers import Soundness
from dynamics.solve import steps
from dynamics.solve.arguments import Shared, integrated
from dynamics.solve.bands import band_values, checked_bands, stored_bands
from dynamics.solve.integration import AnswerCall, Integration, Method, integrate
from dynamics.theory import prediction as theory
from dynamics.theory.learning_rates import quick_limit
from dynamics.theory.prediction import predict
from hermite.arrays import Array
from hermite.text.messages import warn

if TYPE_CHECKING:
    import xarray as xr

    from dynamics.problem.optimizers import Optimizer
    from dynamics.problem.rates import Schedule
    from dynamics.problem.saved_times import SaveAt

#: A negative realisability margin is reported beyond this multiple of `rtol`.
GRAM_WARNING = 1e3
#: Part of the norm of a link that its series may leave out without a warning.
TRUNCATION_WARNING = 1e-2


@integrated("overlaps", Shared)
def solve_overlaps(
    problem: Problem,
    *,
    learning_rate: float | str | Schedule | None = None,
    step_theory: Literal["finite-d", "infinite-d"] | None = None,
    batch_size: int = 1,
    optimizer: Optimizer | str | None = None,
    bands: bool | Literal["any size", "uniform start"] = False,
    device: str | None = None,
    **shared: Unpack[Shared],
) -> xr.Dataset:
    r"""Integrate the exact coupled overlap flow, the gradient flow of ½ E(f − f*)² in overlap space.

    .. math::
       C' = A T - B C - \mathrm{diag}(r) C, \quad G' = X + X^T - \mathrm{diag}(r) G - G\,\mathrm{diag}(r), \quad
       (\ln n_i)' = 4 \Big[\sum_p a_p g(C_{ip}) - \sum_j n_j g(G_{ij})\Big]

    with A = a g'(C), B = n g'(G), X = A Cᵀ − B G, r = diag X and g(s) = Σ_j c_j² s^j.

    Parameters
    ----------
    problem : Problem
    save_at : SaveAt, optional
        Saved times. Default for k ≥ 3: 150 geometric times from a tenth of the first predicted emergence to 2.5 times
        the last predicted learned time; for k ≤ 2: up to 20 times the slowest linear relaxation.
    learning_rate : float, str or Schedule, optional
        Finite step η > 0, dimensionless; time is Σ η. Text such as "0.1x" is that share of `learning_rate_limit`. With
        a schedule such as `cosine`, or its text "cosine(0.01, 100000)", η of the equation is that of the time.
        Default: the flow, η → 0, which the label noise does not change. With method "gradient-descent" the discrete
        steps w ← w − η ∇ ½E(f − f*)², without tolerance, interpolated linearly; with any other method the mean motion
        under online SGD that `step_theory` names. Needs a polynomial link.
    step_theory : {"finite-d", "infinite-d"}, optional
        "finite-d" (the default with a learning rate): the overlaps move by the exact mean of a step at their means,
        R' = E[ΔR]/η and S' = E[ΔS]/η for R = WΘᵀ, S = WWᵀ, label noise included. "infinite-d": its limit d → ∞ at
        fixed η d, taken at the problem's η d. Neither has the scatter of single runs.
    batch_size : int
        Number B of samples per step of SGD.
    optimizer : dynamics.SGD, ZerothOrder, Adam or RMSprop, optional
        What a step does with the gradient; plain SGD by default. Momentum and averages are maps from step to step,
        saved at the nearest steps; most others are passed over along the flow through them. The other optimizers are
        equations at a constant learning rate.
    bands : {False, True, "any size", "uniform start"}
        Whether to tell how far single runs scatter around the mean path of SGD with a `learning_rate`; more than 64
        numbers of the state take "any size". "uniform start" counts the scatter of starts too: uniform random
        directions, of which the problem starts at the mean, without overlaps.
    device : str, optional
        "cuda", "cuda:<number>" or "cpu": torch carries the method "stiff" there, in float64 (extra `torch`).

    Returns
    -------
    Dataset
        `loss(time)`, E(f − f*)² without ½, and `predicted_loss(time)` (sum formula), the overlaps C, G and n, of which
        "summary" keeps the largest overlap and learned mass per direction, and n, `gram_margin(time)` (smallest
        eigenvalue of G − C T⁻¹ Cᵀ, negative only by error; NaN above 256 neurons, and where the method carries vectors,
        as "stiff", "bdf" and "gradient-descent" do), and per direction the predicted and the measured `emergence_time`,
        first C_ip² ≥ `emergence_level` (C > 0 for odd information exponent), and `learned_time`, first
        Σ_i n_i g_3(C_ip)/g_3(1) ≥ a_p/2, g_3(s) = Σ_{j≥3} c_j² s^j (NaN with the attribute `undefined` where the link
        has no degree from 3 on), located on the dense output, NaN if never. All quantities are dimensionless.

        With `bands`, standard deviations of single runs to leading order in η: `loss_sd(time)`, 0 at a minimum,
        `squared_norm_sd(time, neuron)`, `emergence_time_sd(direction)`, "full" `overlap_sd(time, neuron, direction)`
        and `student_overlap_sd(time, neuron, neuron_2)`, "summary" `max_overlap_sd(time, direction)`; of a `Student`
        `second_layer_sd`, `output_layer_sd` and `bias_sd` too. `band_ratio(time)` is R, the largest shift of a mean by
        the next order over its deviation: above 0.15 runs scatter at least so far, above 0.3 they must be drawn.

    Notes
    -----
    The method "stiff" is of order 8 on unit vectors with learned directions slowed, for k ≥ 3, c_0 = 0 and orthonormal
    directions; it is "bdf" otherwise, where it is held up (attribute `fallback`), or with a `step_theory`. "auto" is
    "explicit" while that is cheap, else "stiff". `rtol` and `atol` are of C, G and ln n, `atol` of C and G in units of
    1/√d, the size of a random overlap. Late emergence times can be much less certain: see the estimated errors.

    One evaluation costs 4 m² P + 2 m³ operations. For a link that is not a polynomial this is the flow of its truncated
    Hermite series, and a warning says how much was left out.

    Examples
    --------
    >>> from dynamics import Problem, Teacher
    >>> problem = Problem(activation="he4", teacher=Teacher([0.8, 0.6]), width=8, dimension=64)
    >>> flow = solve_overlaps(problem, progress=False)
    >>> flow.emergence_time.values.round(1).tolist(), flow.predicted_emergence_time.values.round(1).tolist()
    ([2.0, 8.3], [2.0, 8.2])
    >>> flow.loss.values[[0, -1]].round(3).tolist()
    [1.0, 0.0]
    """
    return integrate(
        "overlaps",
        overlap_integration,
        problem,
        shared,
        learning_rate=learning_rate,
        step_theory=step_theory,
        batch_size=batch_size,
        optimizer=optimizer,
        bands=bands,
        device=device,
    )


def overlap_integration(
    run: AnswerCall,
    *,
    learning_rate: object,
    step_theory: object,
    batch_size: object,
    optimizer: object,
    device: str | None,
    bands: object = False,
) -> Integration:
    """Return the integration of the overlaps of the homogeneous student: the gradient flow, gradient descent, or SGD.

    Without a `learning_rate` it is the flow; with one, the mean steps of SGD with `batch_size` samples per step by the
    theory `step_theory`. `device` names where large arrays are, such as "cuda", None for this processor.
    """
    problem, P = run.problem, run.problem.num_directions
    step = steps.checked_step(learning_rate, run.method, step_theory, batch_size, optimizer, problem=problem)
    steps.refuse_beside_map(step, device=device)
    bands = checked_bands(problem, step, bands, run.method)
    # Only pairs tell how long a flow is to be followed, and how the noise of steps changes it.
    pairs = predict(problem) if has_pairs(problem) else None
    step, saved_times = step.planned(run, lambda: theory.default_times(problem, pairs))
    link = problem.activation
    if link.truncation_error > TRUNCATION_WARNING * np.sqrt(link.norm_squared):
        warn(
            f"The flow sees {link.name} through its Hermite series of order {link.order}, which leaves out "
            f"{link.truncation_error:.2g} of its norm; SGD sees the function itself."
        )
    system, limit = steps.make_system(problem, step), steps.limit_of(problem, step)
    steps.warn_limit(step, limit)
    # A device and the flow on isotropic inputs alone take "stiff".
    on_classes = device is None and problem.inputs is not None and step.step_theory is None
    flow = step.method(system, run, saved_times, "bdf" if on_classes else "stiff", device)
    prediction = pairs or predict(problem, "bdf" if flow.name == "bdf" else "explicit")
    estimates = step.fixed_step is None and run.estimates(flow.name)

    inputs = "" if problem.inputs is None else " on inputs that are not isotropic"
    what = "Gradient descent" if step.descends and inputs else "Coupled overlap flow"
    title = f"{what} of the two-homogeneous student{inputs}"
    if step.step_theory is not None:
        title = f"Overlaps of the two-homogeneous student under SGD{inputs or ' of a finite learning rate'}"

    def halved(problem: Problem) -> tuple[Method, Callable[[Array], float]]:
        coarse = steps.make_system(problem, step)
        return replace(flow, system=coarse), coarse.loss_of_states()

    def attributes(values: Values) -> dict[str, object]:
        """Return the attributes of the answer, from its recorded values."""
        margin = values["gram_margin"]
        return {
            **step.attributes,
            "learning_rate_limit": limit,
            **prediction_attributes(prediction),
            # None: it was not monitored.
            "smallest_gram_margin": float(np.nanmin(margin)) if np.isfinite(margin).any() else None,
        }

    return Integration(
        title=title,
        saved_times=saved_times,
        method=flow,
        observe=system.observer(run.keep, lambda: not flow.carries_vectors),
        start=system.initial_state,
        events={"emergence_time": P, "learned_time": P},
        coords=run.neurons() | step.coords(saved_times),
        teacher_by_degree=system.teacher_by_degree,
        constants={
            **prediction_values(prediction),
            "predicted_loss": theory.sum_formula_loss(problem, prediction, saved_times.times),
        },
        settings={**step.arguments, "device": device, **stored_bands(bands)},
        attributes=attributes,
        notes=[*steps.step_notes(problem, step, limit, pairs), *prediction.notes],
        sound=Soundness(0.0 if step.fixed_step else run.rtol, system.teacher_term, falls=step.learning_rate is None),
        loss=system.loss_of_states() if estimates else None,
        cut=run.cut(halved) if estimates else None,
        bands=band_values(problem, step, bands, system, flow.stepper, run.keep),
        threads=lambda: blas_threads_for(problem.width, flow.name),
        warn=_warn_margin,
    )


@integrated("committee", Shared)
def solve_committee(
    problem: Problem,
    *,
    learning_rate: float | str | Schedule | None = None,
    step_theory: Literal["infinite-d", "finite-d"] = "infinite-d",
    batch_size: int = 1,
    optimizer: Optimizer | str | None = None,
    bands: bool | Literal["any size", "uniform start"] = False,
    **shared: Unpack[Shared],
) -> xr.Dataset:
    r"""Integrate the mean online learning of a committee with fixed second layer, in overlap space.

    .. math:: f(x) = \sum_i \sigma(w_i\cdot x), \qquad R' = -E[\bar e\, \sigma'_i\, \theta_p\cdot x], \qquad
       S' = -E[\bar e\, (\sigma'_i\, \lambda_j + \sigma'_j\, \lambda_i)]
       + \eta\, \Big[\tfrac1B E[(\bar e^2 + \tau^2)\, \sigma'_i \sigma'_j\, |x|^2]
       + \big(1 - \tfrac1B\big)\, E[\bar e\, \sigma'_i x]\cdot E[\bar e\, \sigma'_j x]\Big]

    with R = WΘᵀ, S = WWᵀ, λ_i = w_i·x, ē = f − f*; the term in η is that of SGD with B samples per step, the mean of
    w_i ← w_i − η e σ'(λ_i) x, and is left out without a learning rate: the gradient flow of ½ E ē².

    Parameters
    ----------
    problem : Problem
        With ``student="committee"``; link "erf" or a polynomial (for a learning rate: of degree at most 12); any
        teacher.
    save_at : SaveAt, optional
        Saved times, t = η · step. Default: 150 geometric times. For k ≤ 2 to 20 (ln d + |ln n|) / (a g'(1)), n the
        smallest |w_i|² at the start and a the smallest a_p; for k > 2 to 250 times C^(2−k) / (k (k − 2) a c_k²), C the
        overlap of the worst covered direction with its nearest neuron. Where k is odd and the start short, the loss may
        still fall then: no theory says how long it takes.
    learning_rate, batch_size, optimizer
        Of SGD, as in `solve_overlaps`. A large rate can make the norms blow up.
    bands : {False, True, "any size", "uniform start"}
        As in `solve_overlaps`.
    step_theory : {"infinite-d", "finite-d"}
        Whether |x|² in the term in η is d, its limit as d → ∞ with η d fixed, where two samples have nothing in common,
        or all of that term exact.

    Returns
    -------
    Dataset
        As `solve_overlaps`, with R = √n_i C_ip and S = √(n_i n_j) G_ij; `learned_time` is the first Σ_i
        E[σ(w_i·x) σ(θ_p·x)] / E[σ(θ_p·x)²] ≥ a_p/2, of the parts of degree 3 and above of each σ(w·x) in the Hermite
        polynomials of w·x/|w|. No theory predicts times: predicted ones are NaN.

    Notes
    -----
    Tolerances are of R and S. The equations close in the mean; as d → ∞ at fixed η d they hold for a single run. One
    evaluation costs 2 m (m + P)² operations for the flow, m²(m + P)²/2 arcsines more for the step with "erf". The
    learning rate of Saad & Solla (Phys. Rev. E 52, 4225) is η d, their time step/d, their error half the loss.

    Examples
    --------
    >>> from dynamics import Problem, SaveAt, Teacher
    >>> problem = Problem(activation="erf", teacher=Teacher([1.0, 1.0]), width=2, dimension=64, student="committee")
    >>> flow = solve_committee(problem, save_at=SaveAt.at([0.0, 10.0, 100.0, 1000.0]), progress=False)
    >>> flow.loss.values.round(3).tolist()  # neurons are alike on the plateau
    [0.666, 0.023, 0.023, 0.0]
    """
    return integrate(
        "committee",
        committee_integration,
        problem,
        shared,
        learning_rate=learning_rate,
        step_theory=step_theory,
        batch_size=batch_size,
        optimizer=optimizer,
        bands=bands,
    )


def committee_integration(
    run: AnswerCall, *, learning_rate: object, step_theory: str, batch_size: object, optimizer: object,
    bands: object = False,
) -> Integration:  # fmt: skip
    """Return the integration of a committee, a network whose second layer is fixed.

    Without a `learning_rate` it is the gradient flow; with one, SGD with `batch_size` samples per step, by the theory
    `step_theory`, "infinite-d" or "finite-d".
    """
    from dynamics.equations.committee import CommitteeSystem

    problem, P = run.problem, run.problem.num_directions
    check_choice("step_theory", step_theory, ("infinite-d", "finite-d"))
    step = steps.sgd_step(problem, learning_rate, step_theory, batch_size, optimizer)
    steps.refuse_beside_map(step, run.method)
    bands = checked_bands(problem, step, bands, run.method)
    step, saved_times = step.planned(run, lambda: theory.default_committee_times(problem))
    rate = step.learning_rate
    system = steps.optimized(problem, step) or CommitteeSystem(problem, rate, step_theory, step.batch_size)
    if rate is not None:
        steps.warn_limit(step, quick_limit(problem, step.batch_size, step.optimizer))
    flow = step.method(system, run, saved_times)
    return Integration(
        title="Online learning of a committee with fixed second layer",
        saved_times=saved_times,
        method=flow,
        observe=system.observer(run.keep),
        start=system.initial_state,
        events={"emergence_time": P, "learned_time": P},
        coords=run.neurons() | step.coords(saved_times),
        teacher_by_degree=system.teacher_by_degree,
        constants=no_prediction_values(P),
        settings=step.arguments | stored_bands(bands),
        bands=band_values(problem, step, bands, system, flow.stepper, run.keep),
        attributes=lambda _: step.attributes,
        notes=["Committees have no greedy prediction of times."],
        sound=Soundness(0.0 if step.fixed_step else run.rtol, teacher_term(problem), falls=rate is None, dies=True),
        loss=system.loss_of_state if step.fixed_step is None and run.estimates(flow.name) else None,
        threads=lambda: blas_threads_for(problem.width + P, flow.name),
    )


def check(problem: Problem, options: Values) -> None:
    """Refuse a flow beyond the memory, contradictory settings of its steps, and a link without exact moments."""
    check_flow_memory(problem, keep=options["keep"], times=options["save"][1])
    step = steps.checked_step(*(options[name] for name in steps.STEP_OPTIONS), problem=problem)
    checked_bands(problem, step, options.get("bands") or False, options["method"])
    if step.step_theory is not None:
        steps.make_system(problem, step)


def default_flow_times(problem: Problem) -> SaveAt:
    """Return the default saved times of a flow, spread over its predicted times if theory has them."""
    return theory.default_times(problem, predict(problem) if has_pairs(problem) else None)


def has_pairs(problem: Problem) -> bool:
    """Return whether theory predicts times direction by direction, each with one matched neuron."""
    return problem.information_exponent > 2 or is_correlation(problem)


def _warn_margin(attributes: Mapping[str, Any]) -> None:
    """Warn if the least eigenvalue of G − C T⁻¹ Cᵀ, not negative for exact overlaps, is below the tolerance."""
    margin = attributes.get("smallest_gram_margin", 0.0)
    if margin < -GRAM_WARNING * attributes["rtol"]:
        warn(
            f"No vectors have the computed overlaps: G - C T^-1 C^T reached an eigenvalue of {margin:.2g}; solve again "
            "with a smaller `rtol`.",
            category=RuntimeWarning,
        )
