"""Points of a sweep that are answered together: the same answers, to the last bit, as one by one."""

from __future__ import annotations

from concurrent.futures import BrokenExecutor, Future
from dataclasses import fields
from pkgutil import resolve_name

import numpy as np
import pytest

import dynamics
from dynamics import Inputs, Problem, SaveAt, Teacher
from dynamics.equations.overlaps import OverlapSystem
from dynamics.integrators import Status
from dynamics.runs import dataset
from dynamics.runs.dataset import DatasetArrays
from dynamics.runs.storage import StorageError
from dynamics.solve import integration as ensemble
from dynamics.solve.registry import ANSWERS
from dynamics.sweeps import points as sweep_points
from dynamics.sweeps import sweep
from dynamics.sweeps.grid import make_grid
from dynamics.sweeps.points import STUDIES
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


def assert_same(one, other):
    """Every bit but measured seconds."""
    assert set(one.variables) == set(other.variables)
    for name in one.variables:
        if "seconds" not in name:
            assert one[name].dims == other[name].dims
            assert one[name].attrs == other[name].attrs
            np.testing.assert_array_equal(one[name].values, other[name].values, err_msg=name)


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
        (
            Problem(activation="he4", teacher=BASE.teacher, width=4, dimension=16, inputs=Inputs.power_law(0.5)),
            {"seed": range(2)},
            QUICK,
        ),
    ],
)
@pytest.mark.usefixtures("many")
def test_answers_are_those_of_points_one_by_one(monkeypatch, base, grid, options):
    with monkeypatch.context() as patch:
        patch.setattr(sweep, "LARGEST_BUNDLE", 1)
        alone = dynamics.sweep(base, grid, options=options, workers=0, progress=False)
    together, whole = [], sweep_points.answered_together

    def counted(study, points, until):
        answered, warned = whole(study, points, until)
        together.append(len(answered) - answered.count(None))
        return answered, warned

    monkeypatch.setattr(sweep_points, "answered_together", counted)
    found = dynamics.sweep(base, grid, options=options, workers=0, progress=False)
    assert sum(together) == len(list(np.ndindex(*(len(list(values)) for values in grid.values()))))
    assert_same(found, alone)
    monkeypatch.setattr(sweep, "GATHERED_BYTES", 100)
    assert_same(dynamics.sweep(base, grid, options=options, workers=0, progress=False), alone)


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
        assert_same(found, whole)


@pytest.fixture
def asked_alone(monkeypatch):
    """Return the list that gets the seed of every point that is asked alone."""
    seeds, answer_point = [], sweep_points.answer_point

    def noted(study, problem, *rest, **options):
        seeds.append(problem.seed)
        return answer_point(study, problem, *rest, **options)

    monkeypatch.setattr(sweep_points, "answer_point", noted)
    return seeds


class Stopped:
    """A stepper that takes no step, and leaps until it is asked to."""

    def __init__(self, status):
        self.leaps, self._status = True, status

    def advance_through(self, times, max_steps):
        self.leaps = False
        return self._status, np.empty((0, 1))


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("status", [Status.STEP_TOO_SMALL, Status.NOT_FINITE, Status.MAX_STEPS])
def test_a_run_that_does_not_arrive_is_asked_alone_and_the_others_are_kept(tmp_path, monkeypatch, asked_alone, status):
    grid, ask = {"seed": range(4)}, {"options": QUICK, "workers": 0, "progress": False}
    whole, begin = dynamics.sweep(BASE, grid, **ask), ensemble._Flow.begin

    def begun(flow):
        begin(flow)
        if flow.integration.method.system.problem.seed == 2:
            flow.runs[0].stepper = Stopped(status)

    def looked(grid, points, *rest, **options):
        assert bundles_kept(points.path) == [f"{k:06d}.point" for k in range(4)]
        merge_points(grid, points, *rest, **options)

    monkeypatch.setattr(ensemble._Flow, "begin", begun)
    monkeypatch.setattr(sweep, "merge_points", looked)
    assert_same(dynamics.sweep(BASE, grid, output=tmp_path / "a.nc", **ask), whole)
    assert asked_alone == [2]


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("column", ["loss", "max_overlap", "squared_norm"])
def test_a_record_that_is_wrong_is_told_by_its_point_alone(monkeypatch, asked_alone, column):
    """The observers of one flow, alone and together, see what no flow does."""
    grid, ask = {"seed": range(3), "beta": [0.8, 1.2]}, {"options": QUICK, "workers": 0, "progress": False}
    summarise = OverlapSystem.summarise

    def seen(system, state):
        found = summarise(system, state)
        if system.problem.teacher.beta == 1.2:
            found[column][..., 1] = {"loss": 9.0, "max_overlap": 1.5, "squared_norm": -1.0}[column]
        return found

    monkeypatch.setattr(OverlapSystem, "summarise", seen)
    with pytest.warns(RuntimeWarning, match="3 of 6 points failed"):
        found = dynamics.sweep(BASE, grid, **ask)
    assert asked_alone == [0, 1, 2]
    assert [[bool(text) for text in row] for row in found.failure.values] == [[False, True]] * 3


@pytest.mark.usefixtures("many")
def test_bad_arguments_of_one_point_leave_the_others_to_be_asked_alone():
    grid = {"rtol": [1e-5, -1.0], "seed": range(2)}
    options = {name: value for name, value in QUICK.items() if name != "rtol"}
    with pytest.warns(RuntimeWarning, match="2 of 4 points failed"):
        found = dynamics.sweep(BASE, grid, options=options, workers=0, progress=False)
    assert [["rtol" in text for text in row] for row in found.failure.values] == [[False] * 2, [True] * 2]
    assert np.isfinite(found.loss.values[0]).all()


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize(
    "inner", [{"error_estimate": [True, False]}, {"keep": ["full", "summary"]}, {"activation": ["he4", "erf"]}]
)
def test_points_that_cannot_share_a_file_are_answered_once(monkeypatch, inner):
    grid, ask = {"seed": range(2), **inner}, {"options": {"rtol": 1e-5, "save_at": QUICK["save_at"]}, "workers": 0}
    monkeypatch.setattr(sweep_points, "answer_point", None)
    found = dynamics.sweep(BASE, grid, progress=False, **ask)
    assert (found.failure == "").all()
    with monkeypatch.context() as patch:
        patch.undo()
        assert_same(found, dynamics.sweep(BASE, grid, progress=False, **ask))


@pytest.mark.usefixtures("many")
def test_a_file_that_no_block_can_be_is_netcdf(monkeypatch):
    def full(*_):
        raise MemoryError

    asked = make_grid(BASE, {"seed": range(2)}, "overlaps", QUICK)
    monkeypatch.setattr(sweep_points, "packed_together", lambda _points: None)
    monkeypatch.setattr(sweep_points, "packed_together", lambda _points: None)
    answers = sweep_points.answer_points(asked.study, list(asked))
    assert [(answer.failure, sweep_points.is_block(answer.content)) for answer in answers] == [("", False)] * 2
    monkeypatch.setattr(sweep_points, "packed_together", full)
    monkeypatch.setattr(sweep_points, "packed_together", full)
    answers = sweep_points.answer_points(asked.study, list(asked))
    assert [(answer.failure, answer.content) for answer in answers] == [("MemoryError: ", None)] * 2


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


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize(
    ("grid", "options"),
    [({"seed": range(5)}, QUICK), ({"learning_rate": [0.01, 0.02, 0.03]}, QUICK | {"method": "gradient-descent"})],
)
def test_of_points_that_take_long_one_at_a_time_is_answered(tmp_path, monkeypatch, grid, options):
    ask = {"options": {k: v for k, v in options.items() if k not in grid}, "workers": 0, "progress": False}
    whole = dynamics.sweep(BASE, grid, **ask)
    count = sum(map(len, grid.values()))

    def looked(grid, points, *rest, **others):
        assert list(points.files()) == [range(k, k + 1) for k in range(count)]
        merge_points(grid, points, *rest, **others)

    monkeypatch.setattr(sweep, "merge_points", looked)
    monkeypatch.setattr(sweep_points, "BUNDLE_SECONDS", -1.0)
    assert_same(dynamics.sweep(BASE, grid, output=tmp_path / "a.nc", **ask), whole)
    # Where the points come to nothing together, each is asked alone; these are also given back after a while.
    monkeypatch.setattr(sweep_points, "answered_together", lambda _study, points, _until: ([None] * len(points), ()))
    assert_same(dynamics.sweep(BASE, grid, output=tmp_path / "b.nc", **ask), whole)


def test_a_bundle_is_of_consecutive_small_points_of_one_size_and_holds_up_no_other(monkeypatch):
    def found(grid, missing=None, *, study="overlaps", shares=8, **options):
        made = make_grid(BASE, grid, study, {**QUICK, **options} if study == "overlaps" else options)
        asked = list(range(len(made))) if missing is None else missing
        bundles = sweep._bundles(made, asked, shares)
        assert sorted(index for bundle in bundles for index in bundle) == asked
        return bundles

    grid = {"width": [2, 40], "seed": range(300)}
    largest = (1 << 13) // (40 * 43)
    bundles = found(grid)
    assert {len(bundle) for bundle in bundles if bundle[0] >= 300} == {largest}
    assert min(bundles[0]) >= 300  # the largest first
    # In the end there is no more than one in eight of those that are left.
    assert [len(bundle) for bundle in bundles if bundle[0] < 300][:4] == [300 // 8, 263 // 8, 231 // 8, 203 // 8]
    assert {len(bundle) for bundle in bundles[-8:]} == {1}
    assert max(map(len, found(grid, shares=1))) == 64
    assert max(map(len, found(grid, shares=256))) == 600 // 256
    assert found(grid, [0, 1, 5, 6, 7], shares=1) == [range(2), range(5, 8)]
    assert found({"seed": range(3), "dimension": [16, 32]}, shares=1) == [range(6)]
    entries = 3 * 40 * 43 + BASE.teacher.num_directions
    monkeypatch.setattr(sweep, "LARGEST_RECORDS", 3 * entries)
    assert {len(bundle) for bundle in found(grid) if bundle[0] >= 300} == {3}
    many = SaveAt.linear(0.0, 1.0, 1500)
    assert max(map(len, found(grid | {"width": [40]}, save_at=many))) == 1
    held = make_grid(BASE, {"save_at": [many, QUICK["save_at"]], "width": [40], "seed": range(150)}, "overlaps", {})
    assert max(map(len, sweep._bundles(held, list(range(300)), 8))) == 1
    # Neither another study, nor what points would share.
    for alone in (
        {"grid": grid, "study": "prediction"},
        {"grid": grid, "trackers": []},
        {"grid": grid, "max_runtime": 5.0},
    ):
        assert {len(bundle) for bundle in found(**alone)} == {1}


def test_only_like_points_share_a_block(tmp_path):
    def point(values=(1.0, 2.0), *, unit="1", name="a", **attributes):
        variables = {"x": (("p",), np.array(values), {"units": unit})}
        return DatasetArrays(variables, {"q": (("p",), np.array([name] * len(values), dtype=object), {})}, attributes)

    content = sweep_points.packed_together([point(level=1.0), point((3.0, 4.0), why="slow")])
    (tmp_path / "block").write_bytes(content)
    with sweep_points.opened_points(tmp_path / "block") as found:
        assert found.variables["x"].values().tolist() == [[1.0, 2.0], [3.0, 4.0]]
        assert found.variables["q"].values().tolist() == [["a", "a"]] * 2
        assert found.attributes == {"level": [1.0, None], "why": [None, "slow"]}
        assert found.auxiliary == {"q"}
    for other in (point((1.0,)), point((1, 2)), point(unit="s"), point(name="b"), point(flag=True), point(many=[1])):
        assert sweep_points.packed_together([point(), other]) is None
    assert sweep_points.packed_together([point(np.array([True, False]))]) is None


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


def test_what_answers_many_points_is_there():
    named = [answer for answer in ANSWERS if answer.build or answer.prepare]
    assert [answer.name for answer in named] == ["overlaps"]
    for answer in named:
        assert sweep_points.answer_of_many(STUDIES[answer.name]) is answer
        assert len(resolve_name(answer.prepare)([BASE, BASE])) == 2
    assert sweep_points.answer_of_many(STUDIES["prediction"]) is None


def test_all_datasets_of_one_answer_tell_one_moment(monkeypatch):
    """A run that is written to a file gives its dataset twice."""
    moments = iter("ab")
    monkeypatch.setattr(dataset, "stamp_of", lambda *_: {"date_created": next(moments)})
    contents = dataset.dataset_arrays({}, problem=BASE, title="", coords={}, solver={}, attributes={"answer": "x"})
    assert contents.dataset().identical(contents.dataset())
    assert contents.dataset().attrs["date_created"] == "a"
