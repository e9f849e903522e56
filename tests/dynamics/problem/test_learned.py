"""What counts as learned: the degrees of the link from 3 on, against quadrature, and the definition of files of before."""

import json
import math
from dataclasses import replace

import netCDF4
import numpy as np
import pytest
from gaussian_rules import gauss_grid, gauss_rule

import dynamics
import hermite
from dynamics import Inputs, Problem, Teacher
from dynamics.problem.emergence import ALL_DEGREES, IDENTIFYING, LearnedPart
from dynamics.report.elements import cell_text
from dynamics.report.findings import find_findings

QUIET = {"progress": False, "error_estimate": False}
MIXED = {0: 0.3, 1: 0.4, 2: -0.3, 3: 0.5, 4: -0.3, 5: 0.2}
#: Without c_0, c_1 and c_2, and with odd and even degrees.
HIGH = {3: 0.6, 4: 0.5, 6: 0.3}


def mass_by_quadrature(link, C, n):
    """Σ_i n_i E[f(u_i·x) f(θ_p·x)]/E f², f the link without its projections on 1, z and z², by a rule in a plane."""
    z, weights = gauss_rule(24)
    (first, second), measure = gauss_grid(24, 2)[0].T, gauss_grid(24, 2)[1]

    def high(at):
        """Return the link less its best polynomial of degree 2; the rest is orthogonal to all polynomials of degree 2."""
        basis, root = np.stack([z**0, z, z**2], axis=1), np.sqrt(weights)
        part = np.linalg.lstsq(basis * root[:, None], link.value(z) * root, rcond=None)[0]
        return link.value(at) - np.polynomial.polynomial.polyval(at, part)

    own = high(first)
    mean = [[measure @ (own * high(c * first + math.sqrt(1 - c * c) * second)) for c in row] for row in C]
    return n @ np.array(mean) / (measure @ own**2)


def test_degrees_0_1_and_2_do_not_count():
    link = hermite.expand(MIXED)
    part = LearnedPart.of(link)
    np.testing.assert_array_equal(part.coefficients, [0, 0, 0, 0.5, -0.3, 0.2])
    assert (part.definition, part.is_defined, part.first_degree) == (IDENTIFYING, True, 3)
    assert part.kernel_at_one == pytest.approx(0.25 + 0.09 + 0.04, rel=1e-15)
    C, n = np.array([[0.7, -0.2], [0.1, 0.5], [-0.9, 0.3]]), np.array([0.5, 1.2, 0.3])
    # Measured: 2e-15.
    np.testing.assert_allclose(part.mass(C, n), mass_by_quadrature(link, C, n), rtol=0, atol=1e-13)
    np.testing.assert_array_equal(dynamics.equations.learned_mass(link, C, n), part.mass(C, n))
    whole = LearnedPart.of(link, ALL_DEGREES)
    np.testing.assert_array_equal(whole.mass(C, n), n @ link.kernel(C) / link.kernel(1.0))


@pytest.mark.parametrize(("square", "counts"), [(0.9e-12, False), (1.1e-12, True)])
def test_coefficients_below_a_part_of_the_norm_count_as_none(square, counts):
    c = 2.0 * math.sqrt(square)
    assert LearnedPart.of(hermite.expand({2: 2.0, 3: c})).is_defined == counts
    part = LearnedPart.of(hermite.expand({2: 1.6, 3: 1.2, 4: c}))
    assert (part.coefficients[4] == c) == counts


@pytest.mark.parametrize("link", ["he1", "he2", {0: 1.0, 1: 0.5, 2: 0.5}], ids=str)
def test_a_link_of_degree_2_has_no_mass(link):
    part = LearnedPart.of(hermite.expand(link))
    assert not part.is_defined
    assert np.isnan([part.kernel_at_one, *part.mass(np.full((2, 3), 0.5), np.ones(2))]).all()


def test_the_definition_is_one_of_two():
    with pytest.raises(ValueError, match="`learned_definition` must be one of"):
        Problem(activation="he3", teacher=Teacher([1.0]), width=1, dimension=4, learned_definition="all")


START = ([[0.5, 0.1], [0.2, 0.4]], [[1.0, 0.3], [0.3, 1.0]], [0.05, 0.04])
HOMOGENEOUS = {"activation": MIXED, "teacher": Teacher([1.0, 0.7]), "width": 2, "dimension": 12}
SPHERE = {"activation": MIXED, "teacher": Teacher([0.6, 0.4]), "width": 3, "dimension": 8, "student": "spherical"}
ALONE = {**SPHERE, "teacher": Teacher([0.8]), "width": 1, "objective": "correlation"}
#: Name -> solve, problem and settings; the runs of the mean field and of committees have tests beside their equations.
STUDENTS = {
    "explicit": (dynamics.solve_overlaps, HOMOGENEOUS | {"initial_overlaps": START}, {"method": "explicit"}),
    "bdf": (dynamics.solve_overlaps, HOMOGENEOUS | {"initial_overlaps": START}, {"method": "bdf", "rtol": 1e-8}),
    "descent": (dynamics.solve_overlaps, HOMOGENEOUS | {"initial_overlaps": START}, {"method": "gradient-descent", "learning_rate": 1e-3}),
    "inputs": (
        dynamics.solve_overlaps,
        HOMOGENEOUS | {"inputs": Inputs([2.0, 1.0, 0.5], multiplicities=[2, 2, 8]), "initial_norm": 0.2},
        {"method": "explicit"},
    ),
    "spherical": (dynamics.solve_spherical, SPHERE, {}),
    "correlation": (dynamics.solve_correlation, ALONE | {"initial_overlaps": ([[0.3]], [[1.0]], [1.0])}, {}),
}  # fmt: skip
#: The same of mean steps.
STEPPED = {
    "finite step": (dynamics.solve_overlaps, HOMOGENEOUS | {"activation": {1: 0.4, 3: 0.6}, "initial_overlaps": START}, {"learning_rate": 1e-4}),
    "spherical, finite step": (dynamics.solve_spherical, SPHERE, {"learning_rate": 1e-4}),
    "inputs, finite step": (
        dynamics.solve_overlaps,
        HOMOGENEOUS
        | {"activation": {1: 0.4, 3: 0.6}, "inputs": Inputs([2.0, 0.8], multiplicities=[4, 8]), "initial_norm": 0.2},
        {"learning_rate": 1e-4},
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("solve", "given", "settings"),
    [
        *(pytest.param(*case, id=name) for name, case in STUDENTS.items()),
        *(pytest.param(*case, id=name, marks=pytest.mark.slow_to_compile) for name, case in STEPPED.items()),
    ],
)
def test_a_direction_is_learned_when_high_degrees_have_half_of_it(solve, given, settings):
    """At the learned times the mass by quadrature is a_p/2, and it is the saved one."""
    problem = Problem(**given)
    a = problem.teacher.coefficients
    whole = solve(problem, save_at=dynamics.SaveAt.at([0.0, 60.0]), **settings, **QUIET)
    times = whole.learned_time.values
    assert whole.attrs["learned_definition"] == IDENTIFYING
    assert (times[np.isfinite(times)] > 0.0).any()
    at = dynamics.SaveAt.at(np.unique([0.0, *times[np.isfinite(times)]]))
    full, summary = (solve(problem, save_at=at, keep=keep, **settings, **QUIET) for keep in ("full", "summary"))
    sphere = np.full((at.times.size, problem.width), 1 / problem.width)
    n = full.squared_norm.values if "squared_norm" in full else sphere
    masses = [mass_by_quadrature(problem.activation, C, k) for C, k in zip(full.teacher_overlap.values, n, strict=True)]
    np.testing.assert_allclose(summary.learned_mass, masses, rtol=0, atol=1e-12)
    for p in np.flatnonzero(np.isfinite(times)):
        # Measured: at most 1e-8; descent interpolates between its steps.
        assert masses[int(np.argmax(at.times == times[p]))][p] == pytest.approx(a[p] / 2, abs=2e-7)


@pytest.mark.parametrize("method", ["explicit", "bdf", "stiff", "gradient-descent"])
def test_nothing_changes_where_low_degrees_are_0(method):
    problem = Problem(activation=HIGH, teacher=Teacher([0.8, 0.6]), width=3, dimension=8, initial_norm=0.3, seed=1)
    settings = {"method": method, "keep": "summary", "save_at": dynamics.SaveAt.geometric(0.1, 40.0, 5), **QUIET}
    settings |= {"learning_rate": 0.02} if method == "gradient-descent" else {}
    now, then = (
        dynamics.solve_overlaps(each, **settings)
        for each in (problem, replace(problem, learned_definition=ALL_DEGREES))
    )
    assert np.isfinite(now.learned_time).any()
    for name in ("learned_time", "learned_mass", "predicted_learned_time", "loss"):
        np.testing.assert_array_equal(now[name].values, then[name].values)


@pytest.mark.filterwarnings("ignore:The flow sees:UserWarning")
@pytest.mark.parametrize(
    ("link", "teacher", "width"),
    [("relu", Teacher([1.0, 0.1]), 8), ("gelu", Teacher.power_law(4, 1.0), 16)],
    ids=["relu", "gelu"],
)
def test_no_direction_is_learned_before_a_neuron_points_along_it(link, teacher, width):
    """Where all degrees count the last direction is learned at a largest C² of 0.011 (relu), and of 0.07 (gelu)."""
    problem = Problem(activation=link, teacher=teacher, width=width, dimension=64, order=16)
    at = dynamics.SaveAt.geometric(1.0, 300.0, 120)
    flow = dynamics.solve_overlaps(problem, method="explicit", save_at=at, rtol=1e-5, **QUIET)
    largest = (flow.teacher_overlap**2).max("neuron")
    for p, time in enumerate(flow.learned_time.values):
        assert float(largest.interp(time=time)[p]) > 0.25
    shares = problem.activation.kernel(flow.teacher_overlap[..., -1].values) / problem.activation.kernel_at_one
    mass = np.sum(flow.squared_norm.values * shares, axis=1)
    assert float(largest[int(np.argmax(mass >= teacher.coefficients[-1] / 2)), -1]) < 0.1


HE2 = {"activation": "he2", "teacher": Teacher([1.0, 0.5]), "width": 4, "dimension": 16}
SPHERE2 = {"student": "spherical", "teacher": Teacher([0.6, 0.4])}
AT = dynamics.SaveAt.at([0.1, 20.0])
UNDEFINED = {
    "overlaps": (dynamics.solve_overlaps, {}),
    "committee": (dynamics.solve_committee, {"student": "committee", "initial_norm": 0.5}),
    "spherical": (dynamics.solve_spherical, SPHERE2),
    "mean field": (dynamics.solve_mean_field, SPHERE2),
    "correlation": (dynamics.solve_correlation, {"student": "spherical", "objective": "correlation", "width": 1, "teacher": Teacher([1.0])}),
}  # fmt: skip


@pytest.mark.parametrize(("solve", "changes"), UNDEFINED.values(), ids=UNDEFINED)
def test_learned_times_of_degree_2_are_not_defined_and_say_why(solve, changes):
    found = solve(Problem(**HE2 | changes), save_at=AT, keep="summary", progress=False)
    assert {"learned_mass", "learned_time"} <= set(found)
    for name in {"learned_mass", "learned_time", "learned_time_error"} & set(found):
        assert np.isnan(found[name]).all()
        assert found[name].attrs["undefined"].startswith("the link has no part of degree 3 or more")
    assert np.isfinite(found.loss).all()
    assert "undefined" not in found.loss.attrs
    if "predicted_learned_time" in found:
        assert np.isnan(found.predicted_learned_time).all()
        assert "undefined" in found.predicted_learned_time.attrs


def test_other_times_of_degree_2_are_predicted_as_before():
    """The flow of h_2 is that of the linearised forces: emergence and loss; learned times are not predicted."""
    problem = Problem(**HE2)
    found = dynamics.predict_emergence(problem, save_at=dynamics.SaveAt.at([0.0, 50.0]))
    flow = dynamics.solve_overlaps(problem, save_at=dynamics.SaveAt.at([0.0, 50.0]), **QUIET)
    np.testing.assert_allclose(found.emergence_time, flow.emergence_time, rtol=1e-4)
    np.testing.assert_array_equal(found.loss, [1.25, 0.0])
    assert "undefined" in found.learned_time.attrs
    assert "undefined" in found.predicted_learned_time.attrs


@pytest.mark.parametrize("solve", [dynamics.solve_overlaps, dynamics.solve_mean_field, dynamics.predict_emergence])
def test_tables_say_that_they_are_not_defined(solve):
    problem = Problem(**HE2)
    settings = {} if solve is dynamics.predict_emergence else {"progress": False}
    found = find_findings(solve(problem, save_at=AT, **settings))
    assert "learned: not defined, since the link has no part of degree 3 or more" in " ".join(found.sentences)
    rows = [row for table in found.tables for row in table.rows if any("learned" in title for title in row)]
    assert len(rows) == 2
    for row in rows:
        assert {cell_text(value) for title, value in row.items() if "learned" in title} == {"not defined"}
    text = found.as_text({})
    assert "not defined" in text
    assert "not learned" not in text


def test_steps_until_learned_say_that_they_are_not_defined():
    flow = dynamics.solve_overlaps(Problem(**HE2), save_at=AT, **QUIET)
    found = dynamics.learning_steps(flow, direction=1, learning_rate=1e-3, event="learned")
    assert np.isnan(found.steps)
    assert found.notes == (f"the answer has no time for it: {flow.learned_time.attrs['undefined']}",)


def test_a_sweep_says_it_where_all_points_do(tmp_path):
    problem = Problem(activation="he3", teacher=Teacher([1.0]), width=2, dimension=8)
    options = {"save_at": dynamics.SaveAt.at([0.5])}
    both, one = (dynamics.sweep(problem, {"k": k}, options=options, workers=0, progress=False) for k in ([2, 3], [2]))
    assert "undefined" not in both.learned_time.attrs
    assert one.learned_time.attrs["undefined"].startswith("the link has no part")
    assert (both.learned_definition == IDENTIFYING).all()


def make_old(path):
    """Take from a file what files of before do not say."""
    with netCDF4.Dataset(path, "a") as file:
        parameters = json.loads(file.parameters)
        del parameters["problem"]["learned_definition"]
        file.parameters = json.dumps(parameters, sort_keys=True)
        file.delncattr("learned_definition")


def test_a_file_of_before_keeps_all_degrees_and_resume_goes_on_with_them(tmp_path):
    whole = replace(Problem(**HOMOGENEOUS, initial_overlaps=START), learned_definition=ALL_DEGREES)
    settings = {"save_at": dynamics.SaveAt.geometric(0.5, 60.0, 8), "keep": "summary", "method": "explicit", **QUIET}
    expected = dynamics.solve_overlaps(whole, **settings)
    path = tmp_path / "run.nc"

    def stop(time, _state):
        return time > 1.0

    dynamics.solve_overlaps(whole, **settings, checkpoint=path, trackers=[dynamics.Callback(stop)], on_failure="return")
    make_old(path)
    stopped = dynamics.load(path)
    assert np.isnan(stopped.loss[-1])
    assert np.isnan(stopped.learned_time).all()
    assert "learned_definition" not in stopped.attrs
    assert Problem.from_dataset(stopped) == whole
    found = dynamics.resume(path, progress=False)
    for answer in (found, dynamics.load(path)):
        assert answer.attrs["learned_definition"] == ALL_DEGREES
        np.testing.assert_array_equal(answer.learned_time, expected.learned_time)
        np.testing.assert_array_equal(answer.learned_mass, expected.learned_mass)
        assert answer.learned_mass.attrs["symbol"] == r"\sum_i n_i g(C_{ip})/g(1)"
