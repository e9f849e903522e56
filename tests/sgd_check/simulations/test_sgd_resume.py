"""Simulations that end early and go on: bit for bit the uninterrupted ones, generators included."""

import pytest
from engine_state import engine_of
from processes import interrupt_run
from same_answers import assert_same
from uneven_networks import uneven_network

import dynamics
import sgd_check
from dynamics import Callback, RunFile
from dynamics.runs import storage, trackers
from sgd_check.engines.projected import ProjectedEngine
from sgd_check.engines.registry import RunBatch
from sgd_check.run import __main__ as command


def problem_of(**changes):
    given = {"activation": "he3", "teacher": dynamics.Teacher([1.0, 0.6]), "width": 3, "dimension": 12}
    return dynamics.Problem(**given | {"initial_norm": 0.2} | changes)


#: Inputs of three eigenvalues.
CLASSES = dynamics.Inputs([1.5, 0.6, 1.0], [1, 12, 3])
GIVEN = {"learning_rate": 2e-3, "steps": 6000, "seeds": 3, "progress": False}
DECAY = sgd_check.power_law_decay(2e-3, 0.3)


def stopped(run, *arguments, **options):
    """Return what a run kept that is interrupted on its way."""
    with pytest.raises(dynamics.SolveInterrupted, match="The run was interrupted") as caught:
        run(*arguments, **options)
    assert caught.value.dataset.attrs["stop_reason"] == "interrupted"
    return caught.value.dataset


def stop_after(monkeypatch, calls, end):
    advance, count = ProjectedEngine.advance, iter(range(10**9))

    def counted(self, rates):
        advance(self, rates)
        if next(count) == calls:
            end()

    monkeypatch.setattr(ProjectedEngine, "advance", counted)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"batch_size": 3, "save_at": dynamics.SaveAt.at([0.0, 1.0, 7.0])},
        {"learning_rate": DECAY, "seeds": [5, 2]},
        {"learning_rate": DECAY.__call__, "seeds": [5, 2]},
        {"learning_rate": dynamics.Schedule("of mine", DECAY.rates)},
        {"learning_rate": "warmup(cosine(0.002, 6000), 50)"},
    ],
    ids=["single samples", "batches", "decay", "function", "other text", "text"],
)
def test_a_simulation_that_was_stopped_twice_ends_as_if_it_never_was(tmp_path, monkeypatch, changes):
    asked = problem_of(label_noise=0.1)
    whole = sgd_check.simulate(asked, **GIVEN | changes)
    path = tmp_path / "runs.nc"
    rate = GIVEN["learning_rate"] if not callable(changes.get("learning_rate")) else changes["learning_rate"]
    given = {"progress": False} | ({"learning_rate": rate} if callable(rate) and rate is not DECAY else {})
    with monkeypatch.context() as patch:
        stop_after(patch, 200, interrupt_run)
        first = stopped(sgd_check.simulate, asked, **GIVEN | changes, checkpoint=path)
    assert first.attrs["stop_reason"] == "interrupted"
    assert 0 < first.attrs["end_step"] < 6000
    assert dynamics.load(path).identical(first)
    with monkeypatch.context() as patch:
        stop_after(patch, 60, interrupt_run)
        stopped(sgd_check.resume, path, **given)
    assert_same(sgd_check.resume(path, **given), whole)
    assert_same(dynamics.load(path), whole)
    assert storage.load_tree(path).children == {}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "changes", [{}, {"dtype": "float64"}, {"batch_size": 4}], ids=["single precision", "double precision", "batches"]
)
def test_torch_goes_on_in_the_middle_of_a_block(tmp_path, monkeypatch, changes):
    """Stopped after 70 and 1200 of 2500 steps: in the middle of blocks of 16 steps, and of the samples drawn ahead."""
    from sgd_check.engines.torch import engine as online

    monkeypatch.setattr(trackers, "FIRST_CHUNK_STEPS", 7)
    monkeypatch.setattr(trackers, "LARGEST_CHUNK_STEPS", 7)
    asked = problem_of(label_noise=0.1)
    given = GIVEN | {"steps": 2500, "engine": "torch", "device": "cpu"} | changes
    whole, path = sgd_check.simulate(asked, **given), tmp_path / "runs.nc"

    def stopping(step):
        advance, taken = online.OnlineEngine.advance, [0]

        def counted(self, rates):
            advance(self, rates)
            taken[0] += rates.size
            if taken[0] - rates.size < step <= taken[0]:
                interrupt_run()

        return counted

    with monkeypatch.context() as patch:
        patch.setattr(online.OnlineEngine, "advance", stopping(70))
        stopped(sgd_check.simulate, asked, **given, checkpoint=path)
    with monkeypatch.context() as patch:
        patch.setattr(online.OnlineEngine, "advance", stopping(1130))
        stopped(sgd_check.resume, path, progress=False)
    assert_same(sgd_check.resume(path, progress=False), whole)


@pytest.mark.thorough
@pytest.mark.usefixtures("budget_spent_midway")
@pytest.mark.parametrize(
    "changes",
    [
        {"batch_size": 3},
        {"optimizer": dynamics.SGD(momentum=0.8, dampening=0.3, average="polyak")},
        {"optimizer": dynamics.ZerothOrder(directions=2, smoothing=0.3), "batch_size": 3},
        {"engine": "torch", "batch_size": 2},
        {"inputs": CLASSES},
        {"inputs": CLASSES, "engine": "torch"},
    ],
    ids=str,
)
def test_runs_of_networks_go_on(tmp_path, changes):
    """Neurons on the sphere by torch, on isotropic inputs; cut by a budget of time."""
    given = {"learning_rate": 0.02, "steps": 1500, "seeds": 3, "dtype": "float64", "progress": False} | changes
    inputs, path = given.pop("inputs", None), tmp_path / "runs.nc"
    layer = "sphere" if "engine" in changes and inputs is None else "free"
    teacher = dynamics.Teacher.polynomial("x1 + x1*x2")
    asked = uneven_network("erf", teacher, 16, inputs=inputs, first_layer=layer)
    whole = sgd_check.simulate(asked, **given)
    found = sgd_check.simulate(asked, **given, checkpoint=path, max_runtime=1e3)
    assert found.attrs["stop_reason"] == "max_runtime"
    assert 0 < found.attrs["end_step"] < 1500
    assert_same(sgd_check.resume(path, progress=False), whole)


def test_a_budget_can_be_prolonged_and_runs_that_blow_up_stay_so(tmp_path):
    asked, path = problem_of(initial_norm=1.0), tmp_path / "runs.nc"
    given = GIVEN | {"learning_rate": 0.03, "steps": 200_000, "seeds": 6}
    with pytest.warns(UserWarning, match="limit of stability"):
        whole = sgd_check.simulate(asked, **given)
    assert whole.blown_up.sum() > 0
    with pytest.warns(UserWarning, match="limit of stability"):
        found = sgd_check.simulate(asked, **given, checkpoint=path, max_runtime=0.01)
    while found.attrs["stop_reason"] == "max_runtime":
        with pytest.warns(UserWarning, match="limit of stability"):
            found = sgd_check.resume(path, progress=False, max_runtime=0.05)
    assert_same(found, whole)


def refusal(path, error=dynamics.StorageError, **given):
    with pytest.raises(error) as caught:
        sgd_check.resume(path, progress=False, **given)
    return str(caught.value)


def test_what_cannot_be_resumed_is_refused_in_one_sentence(tmp_path, monkeypatch):
    path = tmp_path / "runs.nc"
    with monkeypatch.context() as patch:
        stop_after(patch, 5, interrupt_run)
        stopped(sgd_check.simulate, problem_of(), **GIVEN, checkpoint=path)
    assert refusal(path, ValueError, learning_rate=abs) == (
        f"Argument `learning_rate` must be absent, since the file holds a number, but is {abs!r}."
    )
    with pytest.raises(dynamics.StorageError, match=r"must hold a run of overlaps or .*, but its answer is 'sim"):
        dynamics.resume(path)
    with monkeypatch.context() as patch:
        patch.setattr(ProjectedEngine, "restore", lambda *_: {}["weights"])
        assert "must hold a simulation that can be resumed, but does not: Argument `checkpoint`" in refusal(path)
    flow = tmp_path / "flow.nc"
    dynamics.solve_overlaps(
        problem_of(), save_at=dynamics.SaveAt.at([1.0, 5.0]), progress=False, checkpoint=flow,
        trackers=[Callback(lambda *_: True)],
    )  # fmt: skip
    assert "must hold a simulation, but its answer is 'overlaps'" in refusal(flow)
    other = sgd_check.power_law_decay(2e-3, 0.5)
    varying = tmp_path / "varying.nc"
    with monkeypatch.context() as patch:
        stop_after(patch, 5, interrupt_run)
        stopped(sgd_check.simulate, problem_of(), **GIVEN | {"learning_rate": DECAY.__call__}, checkpoint=varying)
    assert "must be the function given to `simulate`, but is None" in refusal(varying, ValueError)
    assert "must have the mean" in refusal(varying, ValueError, learning_rate=other)


def test_another_schedule_of_the_same_mean_is_refused(tmp_path, monkeypatch):
    """Two levels of the rate in turn, and the same two in the other order."""
    path = tmp_path / "runs.nc"
    with monkeypatch.context() as patch:
        stop_after(patch, 1, interrupt_run)
        stopped(
            sgd_check.simulate, problem_of(), **GIVEN | {"learning_rate": lambda step: (1e-3, 2e-3)[step % 2]},
            checkpoint=path,
        )  # fmt: skip
    assert refusal(path, ValueError, learning_rate=lambda step: (2e-3, 1e-3)[step % 2]) == (
        "Argument `learning_rate` must be that of `simulate` at every step, but is another one of the same mean."
    )
    same = sgd_check.resume(path, progress=False, learning_rate=lambda step: 1e-3 * (1 + step % 2))
    assert same.attrs["stop_reason"] == "reached_end"


def test_engines_without_a_state_keep_what_they_recorded(tmp_path):
    path = tmp_path / "runs.nc"
    asked = problem_of(width=1, teacher=dynamics.Teacher([1.0]), dimension=64)
    found = sgd_check.simulate(
        asked, learning_rate=1e-6, steps=10**9, seeds=2, engine="diffusion", max_runtime=1e-9, checkpoint=path
    )
    assert found.attrs["stop_reason"] == "max_runtime"
    assert "by a method that cannot go on" in refusal(path)


def test_engines_without_a_state_leave_no_file_beside_an_output(tmp_path):
    path = tmp_path / "runs.nc"
    asked = problem_of(width=1, teacher=dynamics.Teacher([1.0]), student="spherical", initial_norm=None)
    file = RunFile(path, every=1e-9, keeps_result=False)
    sgd_check.simulate(asked, **GIVEN | {"engine": "torch", "steps": 300}, checkpoint=file, max_runtime=1.0)
    assert not path.exists()


def test_a_file_of_another_engine_is_refused_in_a_whole_sentence(tmp_path, monkeypatch):
    """As one by torch's blocks on the processor is on a machine where "auto" takes the fused kernel."""
    path = tmp_path / "runs.nc"
    with monkeypatch.context() as patch:
        stop_after(patch, 5, interrupt_run)
        stopped(sgd_check.simulate, problem_of(), **GIVEN, checkpoint=path)
    for name in ("state", "restore"):
        monkeypatch.setattr(ProjectedEngine, name, getattr(RunBatch, name))
    assert refusal(path).endswith("not (runs of ProjectedEngine have no state from which they could go on).")
    with pytest.raises(NotImplementedError, match=r"^runs of ProjectedEngine have no state"):
        engine_of("projected", problem_of(), (1,)).state()


def test_an_engine_that_knows_its_state_but_no_way_back_refuses_to_go_on(monkeypatch):
    monkeypatch.setattr(ProjectedEngine, "restore", RunBatch.restore)
    engine = engine_of("projected", problem_of(), (1,))
    with pytest.raises(NotImplementedError, match=r"^runs of ProjectedEngine have no state"):
        engine.restore(engine.state())


@pytest.fixture
def prediction(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flow = dynamics.solve_overlaps(problem_of(width=4, initial_norm=0.1), progress=False)
    dynamics.save(flow, tmp_path / "flow.nc")
    return tmp_path / "flow.nc"


QUICK = ["--seeds", "6", "--learning-rate", "2e-3", "--theory", "flow", "--no-plot"]


@pytest.mark.thorough
def test_the_command_prints_how_to_go_on_and_does(prediction, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        stop_after(patch, 300, interrupt_run)
        assert command.main(["flow.nc", *QUICK]) == 130
    assert capsys.readouterr().err.endswith(
        "Go on with: python -m sgd_check.run flow.nc --resume flow-sgd-runs.nc --theory flow --no-plot\n"
    )
    again = ["flow.nc", *QUICK, "--output", "other.nc"]
    assert command.main(["flow.nc", *QUICK, "--output", "flow-sgd.nc", "--overwrite", "--resume", "none.nc"]) == 2
    assert capsys.readouterr().err == "error: Option --learning-rate must be absent beside --resume, but is given.\n"
    assert command.main(["flow.nc", *QUICK, "--output", "flow-sgd.nc"]) == 2
    assert "existing file" in capsys.readouterr().err
    assert command.main(["flow.nc", "--resume", "flow-sgd-runs.nc", "--theory", "flow", "--no-plot"]) == 0
    assert not prediction.with_name("flow-sgd-runs.nc").exists()
    assert command.main(again) == 0
    found, whole = dynamics.load("flow-sgd.nc"), dynamics.load("other.nc")
    assert_same(found["simulation"].to_dataset(), whole["simulation"].to_dataset())
    assert found.attrs.get("verdict") == whole.attrs.get("verdict")


def test_files_of_other_runs_are_refused(prediction, tmp_path, monkeypatch, capsys):
    path = tmp_path / "runs.nc"
    with monkeypatch.context() as patch:
        stop_after(patch, 5, interrupt_run)
        stopped(sgd_check.simulate, problem_of(), **GIVEN, checkpoint=path)
    assert command.main(["flow.nc", "--resume", "runs.nc"]) == 2
    assert capsys.readouterr().err == (
        "error: Option --resume must name runs of this prediction, but 'runs.nc' holds those of another.\n"
    )
    assert command.main(["flow.nc", "--resume", "flow.nc"]) == 2
    assert "it holds a finished one" in capsys.readouterr().err
    (tmp_path / "flow-sgd-runs.nc").write_bytes(b"")
    assert command.main(["flow.nc", *QUICK]) == 2
    assert "must not exist: it holds runs that have not ended" in capsys.readouterr().err
