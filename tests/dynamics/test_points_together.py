"""Points of a sweep that are answered together: the same answers, to the last bit, as one by one."""

from concurrent.futures import BrokenExecutor, Future
from dataclasses import fields

import numpy as np
import pytest
from same_answers import assert_same_values

import dynamics
from dynamics import Inputs, Problem, SaveAt, Teacher
from dynamics.runs.storage import StorageError
from dynamics.solve.integration import Run
from dynamics.sweeps import points as sweep_points
from dynamics.sweeps import sweep
from dynamics.sweeps.grid import make_grid
from dynamics.sweeps.sweep import merge_points
from dynamics.sweeps.workers import run_points
from dynamics.theory.prediction import predict, predict_all

BASE = Problem(activation="he4", teacher=Teacher.power_law(3, 1.0), width=4, dimension=16)
QUICK = {"rtol": 1e-5, "error_estimate": False, "keep": "summary", "save_at": SaveAt.at([1.0, 20.0, 300.0])}


@pytest.fixture
def many(monkeypatch):
    """Make bundles of the points of a sweep as large as may be, however long a busy machine takes for them."""
    monkeypatch.setattr(sweep, "SHARES_OF_A_WORKER", 1)
    monkeypatch.setattr(sweep_points, "BUNDLE_SECONDS", np.inf)


def bundles_kept(folder):
    """Return the names of the files of points that a directory is given while its context is entered."""
    return sorted(path.name for path in folder.glob("*.point"))


@pytest.mark.parametrize(
    ("base", "grid", "options"),
    [
        # Times and errors of its own for each point, two kinds of prediction, and three of links.
        (BASE, {"k": [2, 3, 4], "beta": [0.8, 1.2], "seed": range(3)}, {"rtol": 1e-5}),
        # With a looser run beside each, observed together as far as teacher and tolerance are the same.
        (BASE, {"beta": [0.8, 1.2], "seed": range(3), "rtol": [1e-5, 1e-6]}, {"method": "stiff", "keep": "summary"}),
        (BASE, {"dimension": [16, 10**6], "seed": range(4)}, QUICK | {"keep": "full"}),
        (BASE, {"width": [2, 4], "seed": range(3)}, QUICK | {"method": "explicit"}),
        (BASE, {"learning_rate": [1e-5, 1e-4], "seed": range(2)}, QUICK),
        # A link with two unlike sides, and inputs that are not isotropic.
        (Problem(activation={4: 0.8, 5: 0.6}, teacher=BASE.teacher, width=4, dimension=16), {"seed": range(4)}, QUICK),
        (Problem(activation="he4", teacher=BASE.teacher, width=4, dimension=16, inputs=Inputs.power_law(0.5)), {"seed": range(2)}, QUICK),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("many")
def test_answers_are_those_of_points_one_by_one(monkeypatch, base, grid, options):
    with monkeypatch.context() as patch:
        patch.setattr(sweep, "LARGEST_BUNDLE", 1)
        alone = dynamics.sweep(base, grid, options=options, workers=0, progress=False)
    together, whole = [], sweep_points.answered_together

    def counted(study, points, until):
        answered, warned = whole(study, points, until)
        together.append(len(answered))
        return answered, warned

    monkeypatch.setattr(sweep_points, "answered_together", counted)
    found = dynamics.sweep(base, grid, options=options, workers=0, progress=False)
    assert sum(together) == len(list(np.ndindex(*(len(list(values)) for values in grid.values()))))
    assert_same_values(found, alone)
    monkeypatch.setattr(sweep, "GATHERED_BYTES", 100)
    assert_same_values(dynamics.sweep(base, grid, options=options, workers=0, progress=False), alone)


@pytest.mark.usefixtures("many")
def test_workers_answer_together_what_is_asked_again_goes_on(tmp_path, monkeypatch):
    grid, ask = {"beta": [0.8, 1.2], "seed": range(3)}, {"options": QUICK, "progress": False}
    whole = dynamics.sweep(BASE, grid, workers=2, **ask)

    def refuse(_grid, points, *_, **__):
        assert bundles_kept(points.path) == ["000000-000005.point"]
        assert points.done() == set(range(6))
        msg = "no room"
        raise StorageError(msg)

    with monkeypatch.context() as patch:
        patch.setattr(sweep, "merge_points", refuse)
        with pytest.raises(StorageError, match="no room"):
            dynamics.sweep(BASE, grid, workers=0, output=tmp_path / "a.nc", **ask)
    monkeypatch.setattr(sweep_points, "answer_point", None)
    monkeypatch.setattr(sweep_points, "answered_together", None)
    with dynamics.sweep(BASE, grid, workers=0, output=tmp_path / "a.nc", **ask) as found:
        assert_same_values(found, whole)


@pytest.fixture
def asked_alone(monkeypatch):
    """Return the list that gets the seed of every point that is asked alone."""
    seeds, answer_point = [], sweep_points.answer_point

    def noted(study, problem, *rest, **options):
        seeds.append(problem.seed)
        return answer_point(study, problem, *rest, **options)

    monkeypatch.setattr(sweep_points, "answer_point", noted)
    return seeds


@pytest.mark.usefixtures("many")
def test_a_run_that_fails_and_those_after_it_are_asked_alone(tmp_path, monkeypatch, asked_alone):
    grid, ask = {"seed": range(4)}, {"options": QUICK, "workers": 0, "progress": False}
    whole, contents = dynamics.sweep(BASE, grid, **ask), Run.contents

    def failing(run):
        if run.problem.seed == 2 and not asked_alone:
            msg = "no step succeeds"
            raise RuntimeError(msg)
        return contents(run)

    def looked(grid, points, *rest, **options):
        assert bundles_kept(points.path) == ["000000-000001.point", "000002.point", "000003.point"]
        merge_points(grid, points, *rest, **options)

    monkeypatch.setattr(Run, "contents", failing)
    monkeypatch.setattr(sweep, "merge_points", looked)
    assert_same_values(dynamics.sweep(BASE, grid, output=tmp_path / "a.nc", **ask), whole)
    assert asked_alone == [2, 3]


@pytest.mark.parametrize("error", [BrokenExecutor(), RuntimeError("killed")])
def test_the_points_of_a_task_that_was_lost_are_asked_one_by_one(error):
    class Pool:
        window, asked = 2, []

        def submit(self, function, study, points):
            future = Future()
            self.asked.append([point.number for point in points])
            if len(points) > 1:
                future.set_exception(error)
            else:
                future.set_result(function(study, points))
            return future

        def restart(self):
            """Do nothing: it has no workers."""

    kept, pool, grid = [], Pool(), make_grid(BASE, {"seed": range(3)}, "prediction", {})
    run_points([range(3)], grid.point, grid.study, pool, lambda bundle, _: kept.append(bundle))
    assert pool.asked == [[0, 1, 2], [0], [1], [2]]
    assert sorted(kept, key=min) == [range(k, k + 1) for k in range(3)]


def test_predictions_of_many_problems_are_those_of_each():
    teacher, sizes = Teacher.power_law(5, 1.0), {"width": 6, "dimension": 64}
    problems = [
        *(Problem(activation="he4", teacher=teacher, **sizes, seed=seed) for seed in range(4)),
        # Overlaps of 1e-6, whose table reaches further than that of the others.
        Problem(activation="he4", teacher=teacher, width=6, dimension=10**12),
        Problem(activation="he3", teacher=teacher, width=2, dimension=64),
        Problem(activation={4: 0.8, 5: 0.6}, teacher=Teacher.power_law(5, 0.5), **sizes),
        Problem(activation={4: 0.9, 5: 0.3}, teacher=teacher, **sizes, seed=7),
        Problem(activation="he2", teacher=teacher, **sizes),
        Problem(activation="he4", teacher=teacher, **sizes, inputs=Inputs.power_law(0.5)),
        Problem(activation={0: 1.0, 4: 1.0}, teacher=teacher, **sizes),
    ]
    for problem, found in zip(problems, predict_all(problems), strict=True):
        expected = predict(problem)
        for name in (field.name for field in fields(expected)):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
