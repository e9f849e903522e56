"""A host's state changes no answer: settings of torch and matplotlib, variables of git, names and attributes of files."""

import contextlib
import threading

import numpy as np
import pytest
from processes import python

import dynamics
from dynamics import tokens

torch = pytest.importorskip("torch")
import sgd_check  # noqa: E402
from sgd_check.engines.torch.weights import one_torch_thread  # noqa: E402


@contextlib.contextmanager
def as_default(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


HOSTS = {
    "no gradients": torch.no_grad,
    "inference": torch.inference_mode,
    "another device": lambda: torch.device("meta"),
    "double precision": lambda: as_default(torch.float64),
    "half precision": lambda: as_default(torch.bfloat16),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
}
ASKED = {"learning_rate": 0.5, "steps": 5, "progress": False}


def in_torch(student="homogeneous", activation="erf", inputs=None, **options):
    problem = dynamics.Problem(
        activation=activation, teacher=dynamics.Teacher([1.0, 0.5]), width=2, dimension=8, student=student,
        inputs=inputs,
    )  # fmt: skip
    return sgd_check.simulate(problem, engine="torch", **{**ASKED, "seeds": 2, "learning_rate": 0.01, **options})


RUNS = {
    "composition": lambda: sgd_check.tokens.simulate(tokens.Composition(vocabulary=3, hops=4), seeds=4, batch_size=2, **ASKED),
    "memory": lambda: sgd_check.tokens.simulate(tokens.AssociativeMemory(group_sizes=[2, 2], frequencies=[0.3, 0.2]), seeds=4, **ASKED),
    "recall": lambda: sgd_check.tokens.simulate(tokens.FactualRecall(relations=2, subjects=4, answers=2), seeds=4, **ASKED),
    "policy": lambda: sgd_check.tokens.simulate(tokens.PolicyGradient(group_sizes=[1, 3], rewards=[1.0, 0.0]), seeds=4, batch_size=2, **ASKED),
    "graph": lambda: sgd_check.tokens.simulate(tokens.CausalGraph(parents=[None, 0, 1], vocabulary=3), seeds=4, batch_size=2, **ASKED),
    "trigger": lambda: sgd_check.tokens.simulate(tokens.TriggerTask(symbols=3, gaps=[1]), seeds=4, batch_size=2, **ASKED),
    "chain": lambda: sgd_check.tokens.simulate(tokens.ChainOfThought(dimension=2, examples=4, steps=2, rate=0.3), seeds=4, batch_size=2, **ASKED),
    "selection": lambda: sgd_check.tokens.simulate(tokens.Selection(tokens=4, selected=1, heads=1), seeds=4, batch_size=2, **ASKED),
    "committee": lambda: in_torch(student="committee"),
    "homogeneous": in_torch,
    "spherical": lambda: in_torch(student="spherical", starts=[1, 2]),
    "reused samples": lambda: in_torch(student="committee", training_samples=4, batch_size=2),
    "inputs": lambda: in_torch(inputs=dynamics.Inputs([2.0, 0.5], [4, 4])),
    "orthogonal": lambda: in_torch(student="stiefel", activation="he2"),
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("name", RUNS)
def test_runs_have_the_same_bits_whatever_the_host_has_set_in_torch(name):
    alone = RUNS[name]()["loss"].values
    for host in HOSTS.values():
        with host():
            assert np.array_equal(RUNS[name]()["loss"].values, alone, equal_nan=True)
    assert torch.is_grad_enabled()
    assert torch.empty(0).device.type == "cpu"


SMALL = ("--directions", "2", "--width", "4", "--dimension", "16")


@pytest.mark.thorough
def test_a_matplotlibrc_of_the_user_changes_no_figure(tmp_path):
    settings = tmp_path / "matplotlibrc"
    settings.write_text("text.usetex: True\nsavefig.bbox: tight\nfont.size: 30\nlines.linewidth: 9\n", encoding="utf-8")
    for name, own in (("theirs", {"MATPLOTLIBRC": str(settings)}), ("ours", {})):
        done = python("-m", "dynamics.solve", *SMALL, "--output", f"{name}.nc", cwd=tmp_path, **own)
        assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "theirs.png").read_bytes() == (tmp_path / "ours.png").read_bytes()


def test_variables_of_git_name_no_other_repository(tmp_path):
    said = "from dynamics.runs.dataset import git_commit; print(git_commit())"
    found = [python("-c", said, **own).stdout for own in ({}, {"GIT_DIR": str(tmp_path)})]
    assert found[0] == found[1]


@pytest.fixture(scope="module")
def answer():
    return dynamics.predict_emergence(
        dynamics.Problem(activation="he4", teacher=dynamics.Teacher([1.0]), width=1, dimension=16)
    )


@pytest.mark.parametrize("name", ["a" * 252 + ".nc", "é" * 126 + ".nc"])
def test_the_longest_names_can_be_written(answer, tmp_path, name):
    assert dynamics.save(answer, tmp_path / name) == tmp_path / name
    assert dynamics.load(tmp_path / name).identical(answer)
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("value", [True, None, {"a": 1}, {1, 2}, np.True_, object(), 1j, [1, None], np.array([None])])
def test_attributes_that_netcdf_cannot_store_are_refused_in_a_sentence(answer, tmp_path, value):
    for owner, found in (("", answer.assign_attrs(x=value)), (" of 'time'", answer.copy())):
        if owner:
            found["time"].attrs["x"] = value
        with pytest.raises(TypeError, match=f"Attribute 'x'{owner} must be text or numbers, as netCDF stores, but is "):
            dynamics.save(found, tmp_path / "run.nc")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("flag", ["--output", "--csv"])
def test_standard_output_is_no_file(tmp_path, flag):
    done = python("-m", "dynamics.solve", *SMALL, flag, "-", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == f"error: Option {flag} must name a file, but is '-': standard output takes --json alone.\n"
    assert not list(tmp_path.iterdir())


def test_runs_in_two_threads_leave_torch_the_threads_that_it_had():
    """The second one enters while torch has one thread, and leaves last."""
    before, entered, left = torch.get_num_threads(), threading.Event(), threading.Event()

    def second():
        with one_torch_thread():
            entered.set()
            left.wait(10.0)

    with one_torch_thread():
        thread = threading.Thread(target=second)
        thread.start()
        assert entered.wait(10.0)
    left.set()
    thread.join()
    found = []
    for work in (lambda: found.append(torch.get_num_threads()),) * 2:
        other = threading.Thread(target=work)
        other.start()
        other.join()
    assert [torch.get_num_threads(), *found] == [before] * 3
