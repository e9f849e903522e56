"""Every public callable with arguments that would pass, small enough to run, and the kind of each argument."""

from dataclasses import replace
from typing import NamedTuple

import fuzz_values as bad
import numpy as np

import dynamics
import hermite
import sgd_check
from dynamics import Problem, SaveAt, Teacher


class Call(NamedTuple):
    """A callable, good arguments, the kind of each that is replaced, and those that None and a tuple stand for."""

    name: str
    function: object
    good: dict
    kinds: dict
    #: Arguments for which None is good.
    optional: frozenset[str] = frozenset()


def problem(**changes):
    given = {"activation": "he4", "teacher": Teacher([0.8, 0.6]), "width": 3, "dimension": 16} | changes
    return Problem(**given)


def one_of(*values):
    """Return a kind of argument that has these bad values only."""
    return lambda rng: values[int(rng.integers(len(values)))]


def either(*kinds):
    """Return a kind of argument that is bad in several ways."""
    return lambda rng: kinds[int(rng.integers(len(kinds)))](rng)


STUDENTS = {name: problem(student=name) for name in ("homogeneous", "committee")}
SPHERICAL = problem(student="spherical", teacher=Teacher([0.5, 0.5]))
ONE_AXIS = problem(student="spherical", teacher=Teacher([1.0]))
QUADRATIC = problem(activation="he2")


STUDENT = dynamics.Student(activation="erf", width=2, biases="fixed")


def network(link="erf", dimension=16):
    student = replace(STUDENT, activation=link, order=None)
    return Problem(student=student, teacher=Teacher.polynomial("x1 + x1*x2"), dimension=dimension)


TEACHERS = one_of(None, [1.0], 3, "power-law", {}, object())
NO_COEFFICIENTS = ([], [0.0], [-1.0, 2.0], [1.0, np.nan], [np.inf], 1.0, "abc", [[1.0]], None, {}, [True, "x"])
NO_POLYNOMIALS = (
    "", "3", "x0", "x10", "x1/x2", "x1**x1", "x1**13", "x1**-1", "x1**0.5", "h13(x1)", "h2(x1", "y", 3, None, b"x1",
    "x1; x2", "lambda: x1", "x1 if x1 else x2", "(x1+x2+x3+x4+x5+x6)**9", "1e999*x1", "x1" * 300, "import os", "x1.real",
    "x1[0]", "((((x1))))**1000000000", "9**9**9*x1", "x1\0", object(), [], {},
)  # fmt: skip
DIRECTIONS = either(
    bad.array, one_of([[1.0, 1.0], [0.0, 1.0]], [[1.0, 0.0]], [[0.0, 0.0], [1.0, 0.0]], [[np.nan, 1], [1, 0]], 3, "x")
)
WEIGHTS = either(
    bad.array, one_of(np.zeros((3, 16)), np.full((3, 16), np.inf), np.ones((3, 15)), np.ones((16, 3)), 3, [])
)
OVERLAPS = one_of(
    3, (), (1, 2), (1, 2, 3), "CGn", (np.ones((3, 2)),) * 3, (np.ones((3, 2)), np.eye(3), np.ones(3)),
    (np.zeros((3, 2)), np.ones((3, 3)) * 2, np.ones(3)), (np.zeros((3, 2)), np.eye(3), -np.ones(3)),
    (np.full((3, 2), np.nan), np.eye(3), np.ones(3)), (np.zeros((3, 2)), -np.eye(3), np.ones(3)), object(),
)  # fmt: skip
ORDERS = either(bad.seed, one_of(301, 10**9, 10**30))
WIDTHS = either(bad.array, one_of([], [1], [0, 1, 2], [4, 2, 1], [1, 1, 1, 1], [2.5, 3, 4, 5], 3, "abc", ["a"], None))
SEEDS = one_of(0, -1, 1.5, [], [1, 1], [-1], [2**32], ["a"], "three", None, True, [1.5], object(), 10**12)
MISMATCHED = one_of(SPHERICAL, *(value for name, value in STUDENTS.items() if name != "homogeneous"))
PROBLEMS = either(bad.no_problem, MISMATCHED)

#: Name of an argument -> wrong values for it in every callable.
KINDS = {
    "activation": bad.link,
    "atol": bad.positive,
    "batch_size": bad.count,
    "beta": bad.non_negative,
    "checkpoint": bad.folder_path,
    "dimension": either(bad.whole, one_of(1)),
    "dtype": one_of("float16", "float32", "int", "", 3, [], np.float64, object()),
    "engine": bad.choice,
    "initial_overlaps": OVERLAPS,
    "initial_weights": WEIGHTS,
    "keep": bad.choice,
    "label_noise": bad.non_negative,
    "learning_rate": bad.positive,
    "max_runtime": bad.positive,
    "method": bad.choice,
    "num_directions": either(bad.count, bad.enormous),
    "on_failure": bad.choice,
    "order": ORDERS,
    "particles": either(bad.count, bad.enormous),
    "path": bad.source,
    "problem": PROBLEMS,
    "progress": bad.switch,
    "rtol": either(bad.share, one_of(1e-300, 1e-15, 1.0, 2.0)),
    "save_at": bad.no_schedule,
    "seed": bad.seed,
    "seeds": SEEDS,
    "step_theory": bad.choice,
    "teacher": TEACHERS,
    "teacher_activation": bad.link,
    "trackers": one_of(3, "bar", [1], [object()], {"a": 1}, [None]),
    "width": bad.count,
    "widths": WIDTHS,
}
FLOW = "problem save_at keep method rtol atol trackers progress max_runtime on_failure"


def call(
    name,
    function,
    good,
    words="",
    /,
    *,
    optional="",
    **own,
):
    """Return a call with the named arguments of `KINDS`, those of its own kind, and those for which None is good."""
    kinds = {word: KINDS[word] for word in words.split()} | own
    return Call(name, function, good, kinds, frozenset(optional.split()))


WATCHED = "save_at progress max_runtime checkpoint learning_rate particles device"
FLOW_GOOD = {"problem": problem(), "save_at": SaveAt.at([0.1]), "progress": False}
COUNTS = ("directions", "dimension", "starts", "steps", "samples", "seeds", "large_directions", "large_dimension")
STUDIES = (
    ("compute_frontier", dynamics.compute_frontier, {"beta": bad.non_negative, "widths": WIDTHS, "coupled": bad.switch,
                                                     "learning_rate": bad.positive, "largest_width": bad.count}),
    ("finite_size", dynamics.finite_size, {"betas": either(bad.array, one_of([0.3], [0.0], [-1.0], ["a"], 3, None)), "sizes": WIDTHS}),
    ("scaling_study", dynamics.scaling_study, {"beta": bad.non_negative, "coupled": bad.switch}),
    ("quadratic_laws", dynamics.quadratic_laws, {"alpha": bad.positive, "width": bad.count, "dimensions": WIDTHS}),
    ("transfer_study", dynamics.transfer_study, {"beta": bad.non_negative, "widths": WIDTHS}),
    ("sample_complexity", sgd_check.sample_complexity, {"information_exponents": WIDTHS, "dimensions": WIDTHS,
                                                        "rate": bad.positive, "start": bad.positive}),
    ("sgd_transfer", sgd_check.sgd_transfer, {"beta": bad.non_negative, "widths": WIDTHS}),
    ("step_size_phases", sgd_check.step_size_phases, {"start": bad.positive, "learning_rates": either(
        bad.array, one_of([], [-1.0], [0.0], "x", [np.inf]))}),
    ("unstable_discretisation", sgd_check.unstable_discretisation, {
        "beta": bad.positive, "rate": bad.positive, "start": bad.positive, "initial_norm": bad.positive,
        "targets": WIDTHS}),
)  # fmt: skip
#: Arguments of studies of which None means a default.
STUDY_DEFAULTS = {
    "scaling_study": {"directions", "dimension"},
    "compute_frontier": {"largest_width"},
    "step_size_phases": {"learning_rates"},
    "unstable_discretisation": {"targets"},
}


def calls():
    """Yield every public callable but those that take answers."""
    yield call("hermite.expand", hermite.expand, {"x": "he4"}, optional="order", x=bad.link, order=ORDERS)
    yield from _problems()
    yield from _solvers()
    yield from _files()
    yield from _experiments()
    yield from _studies()


def _problems():
    inputs = (
        1.0, [1.0] * 16, "power-law", np.ones(16), {}, object(), dynamics.Inputs([1.0], [15]),
        dynamics.Inputs([2.0, 1.0], [10**12, 4]), dynamics.Inputs(np.arange(1.0, 18.0)),
    )  # fmt: skip
    yield call(
        "Problem", Problem, {"activation": "he4", "teacher": Teacher([0.8, 0.6]), "width": 3, "dimension": 16},
        "activation teacher width dimension seed initial_weights initial_overlaps label_noise teacher_activation order",
        optional="order teacher_activation initial_norm",
        initial_norm=either(bad.positive, one_of(1e200, 1e-200, 10**400)),
        student=bad.choice,
        objective=either(bad.choice, one_of("correlation")),
        smoothing=either(bad.non_negative, one_of(1.0)),
        inputs=one_of(*inputs),
    )  # fmt: skip
    eigenvalues = ([], 1.0, [0.0, 1.0], [-1.0, 2.0], [np.nan, 1.0], [np.inf, 1.0], [1e-101, 1.0], [1e31, 1.0], [1.0])
    counts = ([], [0, 1], [1], [1.5, 2], [-1, 3], 3, "ab", [2**63, 1], [1, 2, 3], [None, 1], {})
    yield call(
        "Inputs", dynamics.Inputs, {"eigenvalues": [2.0, 0.5], "multiplicities": [3, 5]}, optional="multiplicities",
        eigenvalues=either(bad.array, one_of(*eigenvalues)), multiplicities=one_of(*counts),
    )  # fmt: skip
    alpha = either(bad.non_negative, one_of(21.0, 1e300))
    yield call("Inputs.power_law", dynamics.Inputs.power_law, {"alpha": 0.5}, alpha=alpha)
    yield call(
        "Problem of a network", Problem,
        {"student": STUDENT, "teacher": Teacher.polynomial("x1*x2"), "dimension": 16},
        "teacher dimension initial_overlaps activation teacher_activation",
        optional="width activation teacher_activation",
        initial_weights=either(WEIGHTS, one_of(np.ones((2, 1)))),
        width=either(bad.count, one_of(3)),
    )  # fmt: skip
    yield call(
        "Student", dynamics.Student, {"activation": "erf", "width": 2, "biases": "fixed"}, "activation width order",
        optional="order",
        second_layer=bad.choice,
        initial_second_layer=one_of("", "AUTO", 1, 1.5, {}, object(), b"signs", [1.0], [1.0, np.nan], [[1.0, 2.0]], None),
        biases=bad.choice,
        initial_biases=either(bad.non_negative, one_of([1.0], [1.0, np.inf])),
        first_layer=bad.choice,
        scale=bad.positive,
        rates=one_of("fast", (1, 1), (1, -1, 1), (1, np.nan, 1), 3, None, (1, "1", 1), [1] * 4),
        decay=one_of("fast", (1,), (1, -1), (np.inf, 1), 3, None, (1, "1")),
    )  # fmt: skip
    yield call(
        "Teacher", Teacher, {"coefficients": [0.8, 0.6]}, optional="links biases",
        coefficients=either(bad.array, one_of(*(value for value in NO_COEFFICIENTS if value != [-1.0, 2.0]))),
        directions=DIRECTIONS,
        links=one_of("he3", ["he3"], ["he3", 3], [object()], 3, {1: "he3"}, ["he3", "no such link"], ["1", "2"]),
        biases=either(bad.array, one_of([1.0], [1.0, np.nan], [[1.0, 2.0]], "x")),
    )  # fmt: skip
    yield call("Teacher.polynomial", Teacher.polynomial, {"text": "x1 + x1*x2"}, text=one_of(*NO_POLYNOMIALS))
    steep = either(bad.non_negative, one_of(10**400, 1e9))
    yield call("Teacher.power_law", Teacher.power_law, {"num_directions": 4, "beta": 1.0}, "num_directions", beta=steep)
    geometric = {"num_directions": 4, "ratio": 0.5}
    yield call("Teacher.geometric", Teacher.geometric, geometric, "num_directions", ratio=bad.share)
    times, count = {"first": 1.0, "last": 9.0, "count": 3}, either(bad.count, one_of(1), bad.enormous)
    for function, first in ((SaveAt.geometric, bad.positive), (SaveAt.linear, bad.non_negative)):
        yield call(f"SaveAt.{function.__name__}", function, times, first=first, last=bad.positive, count=count)
    yield call("SaveAt.at", SaveAt.at, {"times": [1.0]}, times=bad.times)
    yield call("Problem.from_dataset", Problem.from_dataset, {"dataset": None}, dataset=bad.no_dataset)
    yield call(
        "coupled_problem", dynamics.coupled_problem, {"problem": SPHERICAL, "width": 3, "seed": 0}, "seed",
        problem=either(bad.no_problem, one_of(problem())), width=either(bad.count, bad.enormous),
    )  # fmt: skip


def _solvers():
    rest = FLOW.removeprefix("problem ")

    def refused(*others):
        return either(bad.no_problem, one_of(*others))

    yield call(
        "solve_problem", dynamics.solve_problem, FLOW_GOOD, rest, optional=WATCHED, problem=bad.no_problem,
        rtoll=bad.share,
    )  # fmt: skip
    yield call(
        "predict_emergence", dynamics.predict_emergence, {"problem": problem()}, "problem save_at", optional=WATCHED
    )
    wide = either(PROBLEMS, one_of(QUADRATIC, problem(width=10**9)))
    yield call(
        "solve_decoupled", dynamics.solve_decoupled, {"problem": problem()}, "save_at", optional=WATCHED, problem=wide
    )
    other = either(PROBLEMS, one_of(problem()))
    yield call(
        "solve_quadratic", dynamics.solve_quadratic, {"problem": QUADRATIC}, "save_at", optional=WATCHED, problem=other
    )
    yield call(
        "solve_overlaps", dynamics.solve_overlaps, FLOW_GOOD, f"{rest} learning_rate step_theory batch_size checkpoint",
        optional=f"{WATCHED} step_theory error_estimate",
        problem=either(PROBLEMS, one_of(problem(width=10**9), problem(width=10**6))),
        device=one_of("tpu", "", 3, "cuda:-1", "cuda:99", "cpu:9", [], object(), "meta"),
        error_estimate=bad.switch,
    )  # fmt: skip
    yield call(
        "solve_mean_field", dynamics.solve_mean_field, FLOW_GOOD | {"problem": SPHERICAL, "particles": 16},
        f"{rest} particles checkpoint",
        optional=f"{WATCHED} tracers",
        problem=refused(STUDENTS["committee"]),
        quadrature=bad.choice,
        tracers=either(bad.array, one_of([[2.0, 0.0]], [[np.nan, 0.0]], "x", [1.0])),
    )  # fmt: skip
    for name, good, words, others in (
        ("solve_spherical", SPHERICAL, "", (problem(), STUDENTS["committee"])),
        ("solve_committee", STUDENTS["committee"], " learning_rate step_theory", (problem(), SPHERICAL)),
        ("solve_network", network(), " learning_rate step_theory batch_size", (problem(), SPHERICAL, STUDENTS["committee"])),
    ):  # fmt: skip
        function = getattr(dynamics, name)
        yield call(
            name, function, FLOW_GOOD | {"problem": good}, rest + words, optional=WATCHED, problem=refused(*others)
        )
    pairs = {"problem": ONE_AXIS, "save_at": SaveAt.at([0.1]), "particles": 16}
    yield call(
        "solve_coupling", dynamics.solve_coupling, pairs, "save_at particles rtol atol", optional=WATCHED,
        problem=refused(problem()), largest_step=bad.positive,
    )  # fmt: skip
    yield call(
        "propagation_of_chaos", dynamics.propagation_of_chaos, pairs | {"widths": [2, 4], "seeds": 2},
        "widths seeds save_at particles rtol atol", optional=WATCHED, problem=refused(problem()),
    )  # fmt: skip
    grids = (
        None, [], {}, {"width": []}, {"width": [0]}, {"width": [2, 2]}, {"colour": [1]}, {3: [1]}, {"width": 3},
        {"width": "ab"}, {"teacher": [1]}, {"k": [0]}, {"beta": ["x"]}, "width", {"seed": [-1]}, {"dimension": [1]},
        {"activation": ["__import__('os')"]}, {"k": [np.nan]}, {"num_directions": [10**12]}, {"width": range(10**9)},
    )  # fmt: skip
    yield call(
        "sweep", dynamics.sweep,
        {"problem": problem(), "grid": {"width": [2]}, "study": "prediction", "workers": 0, "progress": False},
        problem=bad.no_problem,
        grid=one_of(*grids),
        study=either(bad.choice, one_of("os:sep", "no.module:f", "a:b:c", ":", "dynamics:__all__")),
        options=one_of([], 3, {"colour": 1}, {3: 1}, "x", {"save_at": 3}, {"rtol": 1e-3}, object()),
        output=bad.folder_path,
        workers=one_of(-1, 1.5, "two", [], True, object(), -(10**9)),
        executor=one_of(3, "pool", [], object()),
    )  # fmt: skip
    yield call("learning_rate_limit", dynamics.learning_rate_limit, {"problem": problem()}, problem=bad.no_problem)
    yield call(
        "fit_power_law", dynamics.fit_power_law, {"x": np.arange(1.0, 9.0), "y": np.arange(1.0, 9.0)},
        x=either(bad.array, bad.times),
        y=either(bad.array, one_of(np.zeros(8), -np.ones(8), np.full(8, np.nan), None)),
        window=one_of((1, 2), 3, "ab", (1,), (1, 2, 3), (np.nan, 1), (9, 1), ("a", "b"), [], {}, (None, None)),
    )  # fmt: skip
    yield call(
        "one_step_moments", dynamics.one_step_moments, {"problem": problem()}, "batch_size",
        problem=refused(SPHERICAL, problem(activation="relu")), weights=WEIGHTS,
    )  # fmt: skip
    yield call(
        "moments_of_overlaps", dynamics.moments_of_overlaps,
        {"problem": problem(), "teacher_products": np.zeros((3, 2)), "student_products": np.eye(3)}, "batch_size",
        optional="dimension",
        problem=refused(SPHERICAL),
        teacher_products=WEIGHTS,
        student_products=either(bad.array, one_of(-np.eye(3), np.triu(np.ones((3, 3))), np.zeros((3, 3)))),
        dimension=bad.count,
    )  # fmt: skip


def _files():
    for function in (dynamics.load, dynamics.resume, sgd_check.resume):
        name = "load" if function is dynamics.load else f"{function.__module__.partition('.')[0]}.resume"
        yield call(name, function, {"path": None}, "path")
    yield call("RunFile", dynamics.RunFile, {"path": None}, path=bad.folder_path, every=bad.positive)


def _experiments():
    good = {"learning_rate": 1e-4, "steps": 4, "seeds": 2, "progress": False}
    shared = "seeds engine save_at batch_size progress max_runtime checkpoint"
    device = one_of("cuda", "tpu", "", 3, [], object())
    yield call(
        "check", sgd_check.check, {"problem": problem()} | good, f"learning_rate {shared}",
        optional="learning_rate steps directions engine save_at progress max_runtime checkpoint",
        problem=either(bad.no_problem, one_of(SPHERICAL)),
        steps=either(bad.count, one_of(10**19)),
        directions=bad.count,
        theory=bad.choice,
        false_alarm_rate=bad.share,
        device=device,
        dtype=one_of("float16", "int", "", 3, [], np.float64, object()),
    )  # fmt: skip
    for name, asked, refused in (
        ("simulate", problem(), bad.no_problem),
        ("simulate of a network", network(), one_of(network("sign"), network(dimension=3))),
    ):
        yield call(
            name, sgd_check.simulate, {"problem": asked} | good, f"{shared} dtype",
            optional="save_at starts training_samples passes max_runtime checkpoint progress",
            problem=either(bad.no_problem, refused),
            learning_rate=either(bad.positive, one_of(lambda _: -1.0, lambda _: np.nan, lambda _: "x")),
            steps=either(bad.count, one_of(10**19, 10**5000)),
            device=device,
            starts=one_of([0, 1], [1], 3, "ab"),
            training_samples=either(bad.count, one_of("some", "0.10001d", "-1d")),
            passes=one_of(2, 1.5, "x"),
            reshuffle=bad.switch,
        )  # fmt: skip
    boundaries = (3, [0], [-1], [1.5], [1, 2], [2, 1], None, ["a"], [10**400, 1])
    yield call(
        "piecewise", sgd_check.piecewise, {"rates": [0.1, 0.2], "boundaries": [3]},
        rates=either(bad.array, one_of(3, [], [0.0, 1.0], ["a", "b"], None, [np.inf, 1.0])),
        boundaries=either(bad.array, one_of(*boundaries)),
    )  # fmt: skip
    yield call(
        "power_law_decay", sgd_check.power_law_decay, {"initial": 0.1, "exponent": 0.5},
        initial=bad.positive, exponent=bad.non_negative, onset=bad.positive,
    )  # fmt: skip
    yield call(
        "inverse_root", dynamics.inverse_root, {"initial": 0.1, "onset": 5}, initial=bad.positive, onset=bad.positive
    )
    yield call(
        "step_decay", dynamics.step_decay, {"initial": 0.1, "factor": 0.5, "every": 3},
        initial=bad.positive, factor=either(bad.positive, one_of(1.5)), every=bad.count,
    )  # fmt: skip
    yield call(
        "cosine", dynamics.cosine, {"initial": 0.1, "steps": 10},
        initial=bad.positive, steps=bad.count, final=either(bad.non_negative, one_of(0.2)),
        warmup=one_of(-1, 10, 0.5, None, "a", [1]),
    )  # fmt: skip
    yield call("warmup", dynamics.warmup, {"schedule": 0.1, "steps": 3}, schedule=bad.positive, steps=bad.count)
    yield call("silver", dynamics.silver, {"rate": 0.1}, rate=bad.positive)
    yield call(
        "descent_loss", dynamics.descent_loss, {"eigenvalues": [1.0, 0.5], "squares": [1.0, 1.0], "rates": [0.1]},
        optional="steps",
        eigenvalues=either(bad.array, one_of(3, [], [1.0], [-1.0, 1.0], [np.inf, 1.0], None)),
        squares=either(bad.array, one_of(3, [], [1.0], [-1.0, 1.0], [np.inf, 1.0], None)),
        rates=either(bad.array, one_of(0.1, [], [0.0], [np.nan], ["a"], None, dynamics.silver(1.0))),
    )  # fmt: skip


def _studies():
    for name, function, kinds in STUDIES:
        accepted = function.__annotations__
        every = {"seed": bad.seed, "information_exponent": either(bad.count, one_of(1, 2, 10**9))}
        every |= dict.fromkeys(COUNTS, bad.count)
        own = {key: kind for key, kind in every.items() if key in accepted} | kinds
        optional = frozenset(STUDY_DEFAULTS.get(name, set()))
        yield Call(name, function, {"progress": False}, own, optional)


def calls_of_answers(answers):
    """Yield what takes answers: those that are given, a flow, runs and their comparison."""
    flow, runs = answers["flow"], answers["runs"]
    others = sgd_check.simulate(problem(seed=3), learning_rate=1e-4, steps=4, seeds=2, progress=False)
    yield Call(
        "save",
        dynamics.save,
        {"result": flow, "path": "good.nc"},
        {"result": one_of(None, 3, "x", {}, [], np.ones(3), object()), "path": bad.folder_path},
    )
    yield Call(
        "compare",
        sgd_check.compare,
        {"prediction": flow, "simulation": runs},
        {
            "prediction": either(bad.no_dataset, one_of(dynamics.predict_emergence(problem(seed=3)))),
            "simulation": either(bad.no_dataset, one_of(flow, others, [], [runs, others], [runs] * 2)),
            "false_alarm_rate": bad.share,
        },
    )
    for name, argument, axes in (
        ("plot_loss", "dataset", "ax"),
        ("plot_emergence", "dataset", "ax"),
        ("plot_emergence_times", "dataset", "ax"),
        ("plot_particles", "dataset", "axes"),
        ("plot_chaos", "dataset", "axes"),
    ):
        kinds = {argument: bad.no_dataset, axes: bad.no_axes}
        yield Call(name, getattr(dynamics, name), {argument: answers.get(name, answers["flow"])}, kinds)
    for name in ("plot_comparison", "plot_learning", "plot_loss_band", "plot_overlaps", "plot_survival", "plot_times"):
        kinds = {
            "tree": bad.no_dataset,
            ("axes" if name in ("plot_comparison", "plot_loss_band") else "ax"): bad.no_axes,
        }
        yield Call(name, getattr(sgd_check, name), {"tree": answers["tree"]}, kinds)
    kinds = {"dataset": bad.no_dataset, "axes": bad.no_axes}
    yield Call("plot_study", sgd_check.plot_study, {"dataset": answers["flow"]}, kinds)
