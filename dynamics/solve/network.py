"""Any two-layer network, in the overlaps of its neurons; the equations are in `equations.network`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Unpack, cast

from dynamics.commands.options import Values
from dynamics.cores import blas_threads_for
from dynamics.integrators.phases import PhasedMethod
from dynamics.problem.checks import require
from dynamics.problem.losses import needs_points
from dynamics.problem.problem import check_flow_memory
from dynamics.runs.trackers import Soundness, outgrown
from dynamics.solve import steps
from dynamics.solve.arguments import Shared, integrated
from dynamics.solve.bands import band_values, checked_bands, stored_bands
from dynamics.solve.integration import AnswerCall, Integration, integrate
from dynamics.solve.points import point_integration, point_system
from dynamics.solve.steps import StepSettings
from dynamics.theory.components import blind_components, default_network_times, predicted_component_times
from hermite.text.messages import warn

if TYPE_CHECKING:
    import xarray as xr

    from dynamics.equations.network.system import NetworkSystem
    from dynamics.integrators.methods import FlowMethod
    from dynamics.problem import Optimizer, Problem, SaveAt, Student
    from dynamics.problem.rates import Schedule


@integrated("network", Shared)
def solve_network(
    problem: Problem,
    *,
    learning_rate: float | str | Schedule | None = None,
    step_theory: Literal["finite-d", "infinite-d"] | None = None,
    batch_size: int = 1,
    optimizer: Optimizer | str | None = None,
    bands: bool | Literal["any size", "uniform start"] = False,
    points: int | None = None,
    **shared: Unpack[Shared],
) -> xr.Dataset:
    r"""Integrate the gradient flow of any two-layer network on its teacher, in overlap space, exactly at every d.

    .. math:: f(x) = s \sum_i v_i\, \sigma(w_i\cdot x + b_i), \qquad
       w_i' = -\varepsilon_w \nabla_{w_i} - \kappa_w w_i, \quad v_i' = -\varepsilon_v \partial_{v_i} - \kappa_v v_i,
       \quad b_i' = -\varepsilon_b \partial_{b_i}

    of ½ E(f − f*)² (arXiv:1906.08632, 2303.00055). With M = WΘᵀ on the teacher's r axes, Q = WWᵀ, Ψ_i = E σ_i (f − f*)
    and its derivatives Ψ¹, Ψ²,

    .. math:: v' = -\varepsilon_v s \Psi - \kappa_v v, \quad b' = -\varepsilon_b s\, v \Psi^1, \quad
       M' = -\varepsilon_w (A M - B) - \kappa_w M, \quad Q' = -\varepsilon_w (G + G^T) - 2 \kappa_w Q, \quad
       G = A Q - B M^T,

    A_ij = s v_i (s v_j E σ'_i σ'_j + δ_ij Ψ²_i), B_i = s v_i E[σ'_i ∇f*]. A neuron on the sphere keeps its length:
    G_ii/Q_ii is taken from A_ii. With `inputs` of covariance Σ, M = ŴΘ̂ᵀ and Q = ŴŴᵀ are those of ŵ = Σ^½ w, and

    .. math:: \hat w_i' = -\varepsilon_w \Sigma \Big(\sum_j A_{ij} \hat w_j - B_i \hat\Theta\Big) - \kappa_w \hat w_i

    is integrated on the axes that classes of equal eigenvalues leave.

    In layer-wise training (`Student(layer_wise=T)`) ε_v = 0 until the time T, and ε_w = ε_b = 0 from then on: a run
    stops at T and begins anew.

    Parameters
    ----------
    problem : Problem
        With a `dynamics.Student`; any teacher. No two neurons may start alike: the flow would never tell them apart.
    save_at : SaveAt, optional
        Saved times. Default: 150 geometric times to 20 times the sum of the times that one neuron alone needs for each
        component of the teacher, or for its slowest unit: 1, ln d or (√d)^(L−2) over the rate of the escape, for a
        component with L = 1, 2, … new axes, counted with their degrees (arXiv:2302.11055). Several units with
        c_1 ≠ 0 add 20 times the time in which degrees from 2 on tell the slowest from the others, but not under an
        optimizer, whose steps take long.
    learning_rate : float, str or Schedule, optional
        As in `solve_overlaps`, in units of the rates; "0.1x" is found by a flow first. Mean steps of SGD, with the term
        of second order in η of Q, are known for neurons of 'erf' with a teacher of 'erf', 'relu', 'step', 'sign' and
        polynomial units or a polynomial, and for polynomial neurons and teachers (up to degree 12), both on isotropic
        inputs.
    step_theory : {"finite-d", "infinite-d"}, optional
        As in `solve_overlaps`; neurons on the sphere have "infinite-d" alone.
    batch_size, optimizer
        As in `solve_overlaps`; `SignSGD` too.
    bands : {False, True, "any size", "uniform start"}
        As in `solve_overlaps`, for every link.
    points : int, optional
        Take means over so many Sobol points, a power of two from 2^10 to 2^24, 2^14 by default for another loss than
        the squared one, labels that are classes, or a `Mixture`, where no closed form is known; m + r ≤ 16. So are the
        mean steps of any link.

    Returns
    -------
    Dataset
        `loss(time)`, E(f − f*)² without ½; `second_layer(time, neuron)` v, `bias(time, neuron)` b,
        `squared_norm(time, neuron)` Q_ii; `sensitivity(time, direction)`, eigenvalues of E ∂_a f ∂_b f over the
        teacher's axes, largest first, beside `teacher_sensitivity(direction)` (NaN where a unit jumps);
        `emergence_time(direction)`, first max_i M_ia²/Q_ii ≥ `emergence_level`; `gram_margin(time)`; of a
        polynomial teacher `component(time, component_name)`, f_α, beside `teacher_component(component_name)`, f*_α, and
        `component_learned_time(component_name)`, first f_α/f*_α ≥ ½, beside `predicted_component_time(component_name)`,
        when one neuron alone leaves the saddle of its monomial; and `series_error(time)` where means are no closed
        form, a bound on their error.
        By points `loss` is E ℓ(f, y), of the squared loss E(f − y)², beside `loss_floor`, the least of any function
        of x; labels that are classes have `test_error(time)` and `bayes_error`; `half_loss_time` and `half_error_time`
        are when they are half-way there. Softmax has `output_layer(time, class, neuron)`. Four scrambles of the points
        have a trajectory each: values are their means, and those with the further name `_error` 3.18 standard errors,
        about 95 %. Sensitivities and components are left out.
        "full" adds `teacher_overlap(time, neuron, direction)` M_ia/√Q_ii and `student_overlap(time, neuron, neuron_2)`
        Q_ij/√(Q_ii Q_jj), "summary" `max_overlap(time, direction)`. All quantities are dimensionless.

    Warns
    -----
    UserWarning
        If no neuron can ever carry some component of the teacher; if steps of the exponential loss are so long-tailed
        that means of runs differ from theory.

    Notes
    -----
    Tolerances are of v, b, M and Q, or Ŵ; "gradient-descent" steps all layers in units of their rates. A run ends where
    a length or a bias is too large for the series of a link: 'series_too_short'. One evaluation costs 2 m (m + r)²
    operations and the means of m²/2 pairs of neurons. With rates that are all positive, no decay and no steps the loss
    does not rise.

    Examples
    --------
    >>> from dynamics import Problem, SaveAt, Student, Teacher
    >>> student = Student(activation="erf", width=3)
    >>> problem = Problem(student=student, teacher=Teacher([1.0]), dimension=16)
    >>> flow = solve_network(problem, save_at=SaveAt.at([0.0, 10.0, 100.0]), progress=False)
    >>> flow.loss.values.round(3).tolist()
    [0.977, 0.027, 0.003]
    """
    return integrate(
        "network",
        network_integration,
        problem,
        shared,
        learning_rate=learning_rate,
        step_theory=step_theory,
        batch_size=batch_size,
        optimizer=optimizer,
        bands=bands,
        points=points,
    )


def network_integration(
    run: AnswerCall, *, learning_rate: object, step_theory: object, batch_size: object, optimizer: object,
    bands: object = False, points: object = None,
) -> Integration:  # fmt: skip
    """Return the integration of a two-layer network; its `Student` says which layers are trained.

    Without a `learning_rate` it is the gradient flow; with one, gradient descent or SGD with `batch_size` samples per
    step.
    """
    problem = run.problem
    step = network_step(problem, learning_rate, run.method, step_theory, batch_size, optimizer)
    bands = checked_bands(problem, step, bands, run.method)
    if points is not None or needs_points(problem):
        return point_integration(run, step, points, bands)
    step, saved_times = step.planned(run, lambda: default_network_times(problem, is_short=not step.is_plain))
    flow, names = network_method(run, step, saved_times), list(problem.teacher.order)
    system = cast("NetworkSystem", flow.first.system if isinstance(flow, PhasedMethod) else flow.system)
    notes = list(system.notes)
    if isinstance(flow, PhasedMethod):
        notes.append(f"layer by layer: v does not move until t = {flow.switch:g}, and v alone moves from then on")
    if blind := blind_components(problem):
        notes.append(
            f"No neuron ever carries {', '.join(blind)}: the mean derivative of {problem.activation.name} of that "
            "order is 0 at every norm and bias that the student has"
        )
        warn(f"{notes[-1]}; trained biases, or fixed ones that are not 0, may help.")
    constants: dict[str, object] = {"teacher_sensitivity": system.teacher_sensitivity()}
    falls = system.falls and not step.descends
    if system.teacher.components.size:
        constants["teacher_component"] = system.teacher.components
        constants["predicted_component_time"] = predicted_component_times(problem)
    return Integration(
        title=f"Two-layer network on its teacher{'' if problem.inputs is None else ', inputs not isotropic'}",
        saved_times=saved_times,
        method=flow,
        observe=system.observer(run.keep),
        start=system.initial_state,
        events={"emergence_time": problem.teacher.span} | ({"component_learned_time": len(names)} if names else {}),
        coords=run.neurons() | step.coords(saved_times) | ({"component_name": names} if names else {}),
        teacher_by_degree=system.teacher_by_degree,
        constants=constants,
        settings=step.arguments | stored_bands(bands),
        attributes=lambda _: {"teacher_loss": system.teacher.square, **step.attributes},
        notes=notes,
        sound=Soundness(0.0 if step.fixed_step else run.rtol, system.teacher.square, falls=falls, dies=True),
        why_failed=lambda state: outgrown(system.series_error(state)),
        loss=system.loss if step.fixed_step is None and run.estimates(flow.name) else None,
        bands=band_values(problem, step, bands, system, flow.stepper, run.keep),
        threads=lambda: blas_threads_for(problem.width + problem.teacher.span),
    )


def network_method(run: AnswerCall, step: StepSettings, saved_times: SaveAt) -> FlowMethod | PhasedMethod:
    """Return the method of a network's flow, or in layer-wise training those of its two phases."""
    first, *later = [step.method(network_system(phase, step), run, saved_times) for phase in run.problem.phases()]
    switch = cast("Student", run.problem.student).switch_time(step.learning_rate)
    return PhasedMethod(first, later[0], switch) if later else first


def check(problem: Problem, options: Values) -> None:
    """Refuse runs beyond the memory, contradictory settings, unknown means, and neurons that start alike."""
    check_flow_memory(problem, keep=options["keep"], times=options["save"][1])
    step = network_step(problem, *(options[name] for name in steps.STEP_OPTIONS))
    checked_bands(problem, step, options.get("bands") or False, options["method"])
    if options.get("points") is not None or needs_points(problem):
        point_system(problem, step, options.get("points"))
        return
    network_system(problem.phases()[0], step)


def network_step(
    problem: Problem, learning_rate: object, method: str, step_theory: object, batch_size: object, optimizer: object
) -> StepSettings:
    """Return the checked settings of steps; for a first layer on the sphere the default theory is "infinite-d"."""
    step = steps.checked_step(learning_rate, method, step_theory, batch_size, optimizer, problem=problem)
    if len(problem.phases()) > 1:
        require(
            step.is_plain,
            f"Argument `optimizer` must be plain SGD where `layer_wise` is given, but is {step.optimizer}.",
        )
        require(
            step.varying is None,
            f"Argument `learning_rate` must be one number where `layer_wise` is given, but is {step.varying!r}.",
        )
    if step_theory is None and step.step_theory and cast("Student", problem.student).first_layer == "sphere":
        return replace(step, step_theory="infinite-d")
    return step


def network_system(problem: Problem, step: StepSettings) -> NetworkSystem:
    """Return the equations of the flow, also for gradient descent, or those of the mean steps of SGD."""
    from dynamics.equations.network.system import NetworkClassSystem, NetworkSystem

    if (optimized_system := steps.optimized(problem, step)) is not None:
        return cast("NetworkSystem", optimized_system)
    if problem.inputs is not None:
        require(
            step.step_theory is None,
            "Argument `problem` must have isotropic inputs for the mean step of SGD of a Student, but has "
            f"{problem.inputs!r}; `sgd_check.simulate` takes such steps.",
        )
        return NetworkClassSystem(problem)
    if step.step_theory is None or step.learning_rate is None:
        return NetworkSystem(problem, step.learning_rate)
    from dynamics.equations.network.steps import NetworkStepSystem

    return NetworkStepSystem(problem, step.learning_rate, step.step_theory, step.batch_size)
