"""Answers that somebody has concatenated, cut or stripped: one sentence says what is missing, or the answer is right."""

import pytest
import xarray as xr
from matplotlib.figure import Figure

import dynamics
from dynamics import Callback

PROBLEM = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([1.0, 0.5]), width=3, dimension=16)
NEED = "Argument `answer` must have the variables, dims and attributes with which this program returned it, but "


@pytest.fixture(scope="module")
def answer():
    return dynamics.predict_emergence(PROBLEM)


@pytest.fixture(scope="module")
def sweep():
    return dynamics.sweep(PROBLEM, {"seed": [0, 1]}, study="prediction", workers=0)


def joined(one, other, dim):
    return xr.concat([one, other], dim=dim, data_vars="all")


@pytest.mark.parametrize(
    ("change", "but"),
    [
        (lambda a: joined(a, a, "run"), "has `teacher_coefficient(run, direction)`, not `teacher_coefficient(direction)`."),
        (lambda a: joined(a, a, xr.Variable("seed", [7, 8])), "has `teacher_coefficient(seed, direction)`, not `teacher_coefficient(direction)`."),
        (lambda a: joined(a, a, "time"), "has `teacher_coefficient(time, direction)`, not `teacher_coefficient(direction)`."),
        (lambda a: a.drop_vars("loss"), "lacks 'loss'."),
        (lambda a: a.drop_vars("emergence_time"), "lacks 'emergence_time'."),
        (lambda a: a.drop_vars(list(a.variables)), "lacks 'direction'."),
        (lambda a: a.isel(direction=0), "has `teacher_coefficient()`, not `teacher_coefficient(direction)`."),
        (lambda a: a.isel(time=0), "has `loss()`, not `loss(time)`."),
        (lambda a: a.isel(time=[]), "has no time."),
        (lambda a: a.rename(direction="q"), "lacks 'direction'."),
        (lambda a: a.drop_attrs(deep=False).assign_attrs(answer="prediction"), "lacks 'title'."),
    ],
)  # fmt: skip
def test_a_summary_says_what_an_answer_lacks(answer, change, but):
    with pytest.raises(ValueError, match=r"^Argument `answer` must ") as caught:
        dynamics.summary(change(answer))
    assert str(caught.value) == NEED + but


def test_a_summary_of_a_changed_sweep_says_what_it_lacks(sweep):
    for changed in (sweep.drop_vars("failure"), sweep.drop_vars("seed"), joined(sweep, sweep, "run")):
        with pytest.raises(ValueError, match=r"^Argument `answer` must have the variables, .*\.$"):
            dynamics.summary(changed)


def test_a_grid_may_have_any_key_that_a_file_holds(tmp_path):
    """Keys that answers use themselves get other names; those that a file cannot hold are refused before any work."""
    for key in ("unit", "direction", "time", "loss", "index", "title"):
        found = dynamics.sweep(PROBLEM, {key: [1, 2]}, study=asked, workers=0, output=tmp_path / f"{key}.nc")
        dynamics.summary(found)
        assert key in dynamics.to_table(found)
        found.close()
    for key, kind, need in (
        ("failure", ValueError, "`grid` must have other keys than 'failure'"),
        ("a/b", TypeError, "Names of grid keys must "),
    ):
        with pytest.raises(kind, match=need):
            dynamics.sweep(PROBLEM, {key: [1, 2]}, study=asked, workers=0)


def asked(problem, **_):
    return dynamics.predict_emergence(problem)


PLOTS = (dynamics.plot_emergence, dynamics.plot_emergence_times, dynamics.plot_loss)


@pytest.mark.parametrize("plot", PLOTS)
def test_figures_of_changed_answers_are_right_or_refused(plot):
    """Every variable and attribute is taken away once, and dims are changed; no figure fails by what is inside of it."""
    answer, bare = dynamics.solve_decoupled(PROBLEM), dynamics.solve_decoupled(PROBLEM).drop_attrs(deep=False)
    changes = [answer.drop_vars(name) for name in answer.variables]
    changes += [bare.assign_attrs({k: v for k, v in answer.attrs.items() if k != name}) for name in answer.attrs]
    changes += [joined(answer, answer, "run"), answer.isel(time=[]), answer.isel(time=0), answer.transpose()]
    refusals = []
    for changed in changes:
        try:
            plot(changed, Figure().subplots())
        except ValueError as error:
            refusals.append(str(error))
    assert len(refusals) >= 3
    assert all(each.startswith("Argument `dataset` must ") and "\n" not in each for each in refusals)


def test_resuming_without_a_record_is_refused(tmp_path):
    """Without its times a run would go on with others, and without a record fail inside."""
    path = tmp_path / "run.nc"
    dynamics.solve_overlaps(
        PROBLEM, save_at=dynamics.SaveAt.geometric(0.5, 30.0, 10), method="explicit", progress=False,
        trackers=[Callback(lambda time, _: time > 3.0)], checkpoint=path,
    )  # fmt: skip
    with xr.open_datatree(path) as tree:
        whole = tree.load()
    groups = {node.path: node.to_dataset(inherit=False) for node in whole["checkpoint"].subtree}
    for name in ("loss", "teacher_overlap", "time"):
        path.unlink()
        xr.DataTree.from_dict({"/": whole.to_dataset().drop_vars(name), **groups}).to_netcdf(path, engine="netcdf4")
        with pytest.raises(dynamics.StorageError) as caught:
            dynamics.resume(path, progress=False)
        need = f"File {str(path)!r} must hold every record of its run, to go on with it, but lacks those of {name!r}."
        assert str(caught.value) == need
