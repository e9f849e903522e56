"""The loss by Hermite degree against integrals over the plane, where neurons and teacher are vectors of R²."""

import numpy as np
import pytest

import dynamics
import hermite
from dynamics import Problem, SaveAt, Student, Teacher
from dynamics.report.findings import find_findings
from dynamics.report.flows import degree_rows
from dynamics.runs.result import Records

TIMES = SaveAt.at([0.0, 1.0, 4.0, 20.0])
WEIGHTS = np.array([[0.5, 0.2], [-0.1, 0.6], [0.3, -0.4]])
OBLIQUE = Teacher([1.0, 0.6], directions=[[1.0, 0.0], [0.6, 0.8]])


@pytest.fixture(scope="module")
def plane():
    """Return points of R² and weights of their normal density: Gauss along the radius, even steps around it."""
    nodes, weights = np.polynomial.legendre.leggauss(80)
    radius = 6.0 * (1.0 + nodes)
    angle = np.arange(4800) * 2.0 * np.pi / 4800 + 0.1
    points = np.stack([np.outer(radius, f(angle)).ravel() for f in (np.cos, np.sin)], axis=1)
    density = np.repeat(6.0 * weights * radius * np.exp(-0.5 * radius**2) / 4800, 4800)
    return points, density


def parts(difference, plane):
    """Return the mean squares of degree 0, 1 and 2 of a function on the plane, and of the rest of it."""
    x, density = plane
    values = density * difference
    tensor = np.einsum("n,na,nb->ab", values, x, x) - values.sum() * np.eye(2)
    found = [values.sum() ** 2, np.sum((values @ x) ** 2), 0.5 * np.sum(tensor**2)]
    return np.array([*found, values @ difference - sum(found)])


def neurons(flow, row):
    """Return the weights (m, 2) at a saved time: the teacher's axes are all there are."""
    return flow.teacher_overlap.values[row] * np.sqrt(flow.squared_norm.values[row])[:, None]


def units(x, directions, link):
    return link.value(x @ np.asarray(directions).T)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:The flow sees relu")
@pytest.mark.parametrize(
    ("activation", "accuracy"), [("relu", 1e-3), ("gelu", 1e-9), ("erf", 1e-9), ({0: 0.3, 3: 1.0}, 1e-9)]
)
def test_parts_of_the_homogeneous_student_are_integrals(activation, accuracy, plane):
    # The series of relu leaves out 1e-4 of E σ², which the parts below degree 3 are free of.
    for teacher in (Teacher([1.0, 0.6]), OBLIQUE):
        problem = Problem(activation=activation, teacher=teacher, width=3, dimension=2, initial_weights=WEIGHTS)
        flow = dynamics.solve_overlaps(problem, save_at=TIMES, progress=False)
        rows = np.eye(2) if teacher.directions is None else teacher.directions
        target = units(plane[0], rows, problem.activation) @ teacher.coefficients
        for row in range(len(TIMES)):
            C, n = flow.teacher_overlap.values[row], flow.squared_norm.values[row]
            u = C if teacher.directions is None else np.linalg.solve(rows, C.T).T
            found = flow.degree_loss.values[row]
            expected = parts(units(plane[0], u, problem.activation) @ n - target, plane)
            np.testing.assert_allclose(found[:3], expected[:3], rtol=1e-5, atol=1e-9)
            np.testing.assert_allclose(found[3], expected[3], rtol=0, atol=accuracy)
            assert found.sum() == pytest.approx(float(flow.loss[row]), rel=1e-12, abs=1e-15)
        np.testing.assert_allclose(flow.teacher_by_degree[:3], parts(target, plane)[:3], rtol=1e-5, atol=1e-9)
        assert flow.degree.values.tolist() == ["0", "1", "2", "rest"]


@pytest.mark.thorough
@pytest.mark.parametrize("activation", ["erf", "h0 + 0.5*h1 + h2 + 0.4*h3"])
def test_parts_of_a_committee_are_integrals(activation, plane):
    given = {"student": "committee", "width": 3, "dimension": 2, "initial_weights": WEIGHTS}
    problem = Problem(activation=activation, teacher=Teacher([1.0, 0.6]), **given)
    for keep in ("full", "summary"):
        flow = dynamics.solve_committee(problem, save_at=SaveAt.at([0.0]), keep=keep, progress=False)
        difference = units(plane[0], WEIGHTS, problem.activation).sum(axis=1)
        target = units(plane[0], np.eye(2), problem.activation) @ problem.teacher.coefficients
        np.testing.assert_allclose(flow.degree_loss[0], parts(difference - target, plane), rtol=0, atol=1e-9)
        np.testing.assert_allclose(flow.teacher_by_degree, parts(target, plane), rtol=0, atol=1e-9)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("activation", "teacher", "accuracy"),
    [
        ("relu", Teacher([1.0, -0.6], directions=OBLIQUE.directions, links=["erf", "relu"], biases=[0.2, 0.0]), 1e-5),
        ("gelu", Teacher([1.0, 0.5]), 1e-9),
        ("erf", Teacher.polynomial("0.3 + x1 + 0.5*x1*x2 + h3(x2)"), 1e-7),
    ],
)
def test_parts_of_a_network_with_biases_are_integrals(activation, teacher, accuracy, plane):
    student = Student(activation=activation, width=3, biases="trained", scale=0.5)
    problem = Problem(student=student, teacher=teacher, dimension=2, initial_weights=WEIGHTS)
    flow = dynamics.solve_network(problem, save_at=SaveAt.at([0.0, 2.0]), progress=False)
    x = plane[0]
    if teacher.is_polynomial:
        target = teacher.target.value(x)
    else:
        found = teacher.units(problem.teacher_link)
        target = sum(unit.coefficient * unit.link.value(x @ unit.direction + unit.bias) for unit in found)
    for row in (0, 1):
        hidden = student.activation.value(x @ neurons(flow, row).T + flow.bias.values[row])
        expected = parts(0.5 * hidden @ flow.second_layer.values[row] - target, plane)
        np.testing.assert_allclose(flow.degree_loss[row], expected, rtol=0, atol=accuracy)
        assert float(flow.degree_loss[row].sum()) == pytest.approx(float(flow.loss[row]), rel=1e-12)
    np.testing.assert_allclose(flow.teacher_by_degree, parts(target, plane), rtol=0, atol=accuracy)


@pytest.mark.parametrize("activation", ["he2", "he4", "h3 + h5"])
def test_the_loss_is_not_told_by_degree_where_one_part_is_all_of_it(activation):
    problem = Problem(activation=activation, teacher=Teacher([1.0, 0.6]), width=3, dimension=8)
    flow = dynamics.solve_overlaps(problem, save_at=SaveAt.at([1.0]), progress=False)
    assert not {"degree_loss", "teacher_by_degree", "degree"} & set(flow.variables)


def test_inputs_that_are_not_isotropic_have_no_degrees():
    inputs = dynamics.Inputs.power_law(0.5)
    problem = Problem(activation="erf", teacher=Teacher([1.0, 0.6]), width=3, dimension=8, inputs=inputs)
    assert "degree_loss" not in dynamics.solve_overlaps(problem, save_at=SaveAt.at([1.0]), progress=False)


def test_a_link_with_two_parts_is_told_by_degree_and_the_equation_of_steps_too():
    link = hermite.expand({1: 0.5, 3: 1.0})
    problem = Problem(activation=link, teacher=Teacher([1.0, 0.6]), width=3, dimension=8)
    settings = {"save_at": SaveAt.at([0.0, 5.0]), "progress": False}
    flow = dynamics.solve_overlaps(problem, **settings)
    stepped = dynamics.solve_overlaps(problem, learning_rate=1e-4, **settings)
    np.testing.assert_array_equal(flow.degree_loss[0], stepped.degree_loss[0])
    np.testing.assert_allclose(stepped.degree_loss.sum("degree"), stepped.loss, rtol=1e-12)
    assert float(flow.degree_loss.sel(degree="1")[1]) < 0.1 * float(flow.degree_loss.sel(degree="1")[0])


def test_files_and_sweeps_keep_the_degrees(tmp_path):
    problem = Problem(activation="erf", teacher=Teacher([1.0, 0.6]), width=3, dimension=8)
    settings = {"save_at": SaveAt.at([0.0, 5.0])}
    flow = dynamics.solve_overlaps(problem, progress=False, **settings)
    back = dynamics.load(dynamics.save(flow, tmp_path / "flow.nc"))
    np.testing.assert_array_equal(back.degree_loss.sel(degree="1"), flow.degree_loss.sel(degree="1"))
    swept = dynamics.sweep(problem, {"seed": [0, 1]}, options=settings, workers=0, progress=False)
    np.testing.assert_array_equal(swept.degree_loss.sel(seed=0), flow.degree_loss)
    assert swept.degree.values.tolist() == ["0", "1", "2", "rest"]


def test_an_observable_that_older_records_have_not_is_unknown_there():
    records = Records(3)
    records.append({"loss": 1.0})
    records.append({"loss": 0.5, "degree_loss": np.array([0.2, 0.3])})
    np.testing.assert_array_equal(records.columns["degree_loss"][:2], [[np.nan, np.nan], [0.2, 0.3]])


def test_the_command_and_the_figure_tell_the_parts_by_degree():
    # Degree 1 falls like e^(-2t), degree 3 not at all.
    time = np.linspace(0.0, 2.0, 21)
    left = np.stack([np.zeros(21), 0.5 * np.exp(-2.0 * time), np.zeros(21), np.full(21, 0.3)], axis=1)
    problem = Problem(activation={1: 0.6, 3: 0.8}, teacher=Teacher([1.0, 0.6]), width=3, dimension=8)
    flow = dynamics.solve_overlaps(problem, save_at=SaveAt.at(time), progress=False)
    whole = [0.0, 0.4, 0.0, 0.31]
    toy = flow.assign(degree_loss=(("time", "degree"), left), teacher_by_degree=("degree", whole))
    first, rest = degree_rows(toy)
    assert (first["degree"], rest["degree"]) == ("1", "3 and above")
    assert first["half_time"] == pytest.approx(0.5 * np.log(0.5 / 0.2), rel=1e-12)
    assert rest["half_time"] == np.inf
    lines = find_findings(toy).as_text({})
    assert "never" in next(line for line in lines.splitlines() if line.startswith("3 and above"))
    named = [line.get_label() for line in dynamics.plot_loss(toy).get_lines()]
    assert [name for name in named if "degree" in name] == ["degree 1", "degree 3 and above"]
