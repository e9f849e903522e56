"""What counts as learned in runs of SGD and where they meet a prediction: degrees from 3 on, by one definition."""

import json
from dataclasses import replace

import netCDF4
import numpy as np
import pytest

import dynamics
import sgd_check
from dynamics import Inputs, Problem, SaveAt, Teacher
from dynamics.problem.emergence import ALL_DEGREES, IDENTIFYING
from dynamics.report.findings import find_findings
from sgd_check.verdicts.curves import quantities_of
from sgd_check.verdicts.verdict import tell_alike

MIXED = {0: 0.2, 1: 0.4, 2: -0.3, 3: 0.6}
START = ([[0.9, 0.1], [0.1, 0.8]], [[1.0, 0.2], [0.2, 1.0]], [0.5, 0.25])
GIVEN = {"activation": MIXED, "teacher": Teacher([0.9, 0.7]), "width": 2, "dimension": 10}
ALONE = {"activation": MIXED, "teacher": Teacher([0.9]), "width": 1, "dimension": 16, "student": "spherical"}
LEANING = ([[0.4]], [[1.0]], [1.0])
INPUTS = Inputs([1.2, 0.9], multiplicities=[4, 6])
#: Name -> problem, engine, learning rate.
RUNS = {
    "projected": (GIVEN | {"initial_overlaps": START}, "projected", 1e-3),
    "torch": (GIVEN | {"initial_overlaps": START}, "torch", 1e-3),
    "classes": (GIVEN | {"inputs": INPUTS, "initial_norm": 0.6}, "projected", 1e-3),
    "spherical": (ALONE | {"initial_overlaps": LEANING}, "torch", 1e-3),
    "scalar": (ALONE | {"objective": "correlation", "initial_overlaps": LEANING}, "scalar", 1e-3),
    "committee": (GIVEN | {"student": "committee", "initial_overlaps": START}, "torch", 1e-3),
}


def mass_of_degree_3(runs, problem):
    """Σ_i n_i C_ip³ from records (runs, times, P): degree 3 is the only one of `MIXED` that counts."""
    C = runs.teacher_overlap.values
    if problem.kind == "spherical":
        return np.mean(C**3, axis=2)
    return np.einsum("sti,stip->stp", runs.squared_norm.values ** (1.5 if problem.kind == "committee" else 1.0), C**3)


@pytest.mark.thorough
@pytest.mark.parametrize(("given", "engine", "rate"), RUNS.values(), ids=RUNS)
def test_a_run_has_learned_when_degree_3_has_half_of_the_direction(given, engine, rate):
    """Between the two records, one per step, that say so."""
    problem = Problem(**given)
    at = SaveAt.linear(0.0, 3000 * rate, 3001)
    # The statistics of runs play no part: every crossing is looked for in the records of its own run.
    runs = sgd_check.simulate(
        problem, learning_rate=rate, steps=3000, seeds=2, engine=engine, save_at=at, progress=False
    )
    mass, half, crossed = mass_of_degree_3(runs, problem), problem.teacher.coefficients / 2, 0
    assert runs.attrs["learned_definition"] == IDENTIFYING
    for s, p in np.ndindex(2, problem.num_directions):
        after = int(np.argmax(mass[s, :, p] >= half[p]))
        time = float(runs.learned_time[s, p])
        if after == 0:
            assert np.isnan(time) or time == 0.0
            continue
        low, high = runs.time.values[after - 1 : after + 1]
        assert low <= time <= high * (1 + 1e-12)
        crossed += 1
    assert crossed >= 2


def test_runs_of_degree_2_say_that_they_have_no_learned_times():
    runs = sgd_check.simulate(
        Problem(**GIVEN | {"activation": "he2"}), learning_rate=1e-3, steps=100, seeds=2, progress=False
    )
    assert np.isnan(runs.learned_time).all()
    assert runs.learned_time.attrs["undefined"].startswith("the link has no part")


def flow_and_runs(problem, **changes):
    at = SaveAt.linear(0.0, 4.0, 41)
    flow = dynamics.solve_overlaps(problem, save_at=at, keep="summary", progress=False, error_estimate=False)
    runs = [
        sgd_check.simulate(
            replace(problem, **changes),
            learning_rate=rate,
            steps=round(4.0 / rate),
            seeds=8,
            save_at=at,
            progress=False,
        )
        for rate in (2e-4, 1e-4)
    ]
    return flow, runs


def quantities(flow, runs):
    return sgd_check.compare(flow, runs)["comparison"]["quantity"].values.tolist()


def test_learned_is_compared_by_one_definition_alone():
    """The masses that a summary holds are those of its own definition; overlaps give either."""
    problem = Problem(**GIVEN, initial_overlaps=START)
    flow, runs = flow_and_runs(problem)
    other = dynamics.solve_overlaps(
        replace(problem, learned_definition=ALL_DEGREES), save_at=SaveAt.at(flow.time.values), keep="summary",
        progress=False, error_estimate=False,
    )  # fmt: skip
    assert "learned mass of direction 1" in quantities(flow, runs)
    assert [name for name in quantities(other, runs) if "learned" in name] == []
    assert "loss" in quantities(other, runs)
    assert tell_alike("learned_time", (flow, *runs))
    assert not tell_alike("learned_time", (other, *runs))
    assert tell_alike("emergence_time", (other, *runs))
    # A file of before says nothing, and counts all.
    del other.attrs["learned_definition"]
    assert not tell_alike("learned_time", (other, *runs))
    whole = dynamics.solve_overlaps(
        replace(problem, learned_definition=ALL_DEGREES), save_at=SaveAt.at([1.0]), progress=False
    )
    (found,) = (course.values for course in quantities_of(problem, whole) if course.label == "1")
    wanted = np.sum(whole.squared_norm.values * whole.teacher_overlap.values[:, :, 0] ** 3, axis=1)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_the_verdict_on_degree_2_goes_by_the_other_curves():
    problem = Problem(**GIVEN | {"activation": "he2"}, initial_overlaps=START)
    flow, runs = flow_and_runs(problem)
    assert not tell_alike("learned_time", (flow, *runs))
    tree = sgd_check.compare(flow, runs)
    names = tree["comparison"]["quantity"].values.tolist()
    assert names[0] == "loss"
    assert [name for name in names if "learned" in name] == []
    text = find_findings(tree).as_text({})
    assert "not learned" not in text
    ax = sgd_check.plot_learning(tree)
    assert "not defined" in ax.texts[0].get_text()
    assert not ax.lines


@pytest.mark.thorough
def test_a_simulation_of_before_goes_on_with_all_degrees(tmp_path):
    whole = replace(Problem(**GIVEN, initial_overlaps=START), learned_definition=ALL_DEGREES)
    settings = {"learning_rate": 1e-5, "steps": 400_000, "seeds": 2, "save_at": SaveAt.linear(0.0, 4.0, 9)}
    settings["progress"] = False
    path = tmp_path / "runs.nc"
    sgd_check.simulate(whole, **settings, checkpoint=path, max_runtime=0.02)
    with netCDF4.Dataset(path, "a") as file:
        parameters = json.loads(file.parameters)
        del parameters["problem"]["learned_definition"]
        file.parameters = json.dumps(parameters, sort_keys=True)
        file.delncattr("learned_definition")
    assert dynamics.load(path).attrs["stop_reason"] == "max_runtime"
    expected = sgd_check.simulate(whole, **settings)
    now = sgd_check.simulate(replace(whole, learned_definition=IDENTIFYING), **settings)
    found = sgd_check.resume(path, progress=False)
    assert found.attrs["learned_definition"] == ALL_DEGREES
    np.testing.assert_array_equal(found.learned_time, expected.learned_time)
    np.testing.assert_array_equal(found.loss, now.loss)
    assert (found.learned_time < now.learned_time).all()
