"""Pages on comparisons, runs and studies of SGD: found by name, with the numbers of the result."""

import numpy as np
import pytest
import xarray as xr
from html_reader import read_page

import dynamics
import sgd_check
from dynamics.report.findings import find_findings
from hermite.text.messages import rounded
from sgd_check.report.findings import time_rows


@pytest.fixture(scope="module")
def runs(tools):
    problem = tools.problem([[0.55, 0.05], [0.03, 0.5], [0.02, -0.04]], dimension=16)
    return sgd_check.simulate(problem, learning_rate=2e-4, steps=6000, seeds=8, progress=False)


@pytest.fixture(scope="module")
def tree(tools, runs):
    flow = tools.flow(dynamics.Problem.from_dataset(runs), np.geomspace(0.02, 1.2, 30))
    return sgd_check.compare(flow, runs)


@pytest.fixture
def written(tmp_path):
    def write(result):
        return read_page(dynamics.write_report(result, tmp_path / "page.html", overwrite=True))

    return write


def number(cell):
    return np.nan if cell == "–" else float(cell)


@pytest.mark.thorough
def test_a_comparison_begins_with_its_verdict(tree, written):
    page = written(tree)
    attrs = tree["comparison"].attrs
    words = {"agree": "Theory and SGD agree.", "disagree": "Theory and SGD disagree.", "undecided": "Undecided."}
    assert page.text("strong") == [f"{words[attrs['verdict']]} {attrs['reasons']}"]
    assert attrs["loss_statement"] in page.text("p")
    shown = page.tables["Emergence times of SGD against prediction"]
    for title, name in (("predicted", "predicted"), ("SGD, median", "sgd_median"), ("z", "z")):
        expected = [np.nan if row[name] is None else row[name] for row in time_rows(tree)]
        np.testing.assert_allclose([number(row[title]) for row in shown], expected, rtol=1e-4)
    ratios = [rounded(row["ratio"], row["standard_error"]) for row in time_rows(tree)]
    assert [(row["ratio"], row["± s.e."]) for row in shown] == ratios
    facts = [tag["data-facts"] for tag in page.all("path") if tag["class"] == "curve"]
    assert [text.rpartition("; ratio ")[2] for text in facts] == [f"{ratio} ± {error}" for ratio, error in ratios]
    assert len(page.images) == 4
    assert all(attrs["verdict"] in alt for alt, _, _ in page.images)
    assert {"Variables of /comparison", "Variables of /prediction", "Variables of /simulation"} <= set(page.tables)


@pytest.mark.parametrize(("word", "tone"), [("agree", "good"), ("disagree", "bad"), ("undecided", "caution")])
def test_a_verdict_has_its_tone_and_lost_runs_are_named(tree, word, tone):
    judged = xr.DataTree.from_dict({path: node.to_dataset() for path, node in tree.children.items()})
    judged["comparison"].attrs |= {"verdict": word, "blown_up_count": 3, "usable_runs": 5}
    found = find_findings(judged)
    assert found.tone == tone
    assert found.cautions == ["3 of 8 runs blew up and are left out."]
    judged["simulation"].attrs["stop_reason"] = "max_runtime"
    early = find_findings(judged)
    assert early.as_text({}).startswith(f"Unfinished: the runs stopped early (max runtime). {found.verdict}\n")
    assert early.tone == tone


def test_runs_alone_show_their_quartiles_and_what_was_not_seen(runs, written):
    late = runs.copy(deep=True)
    late["emergence_time"].values[:6, 1] = np.nan
    late["censored"].values[:6, 1] = 1
    page = written(late)
    first, second = page.tables["Emergence times of the runs"]
    times = np.sort(runs["emergence_time"].values[:, 0])
    assert number(first["median"]) == pytest.approx(times[4], rel=1e-4)
    assert (second["runs that emerged"], second["median"], second["third quartile"]) == ("2", "never", "never")
    assert "6 of 16 emergences were not seen by the end (censored)." in page.text("li")
    assert len(page.images) == 2


@pytest.mark.thorough
@pytest.mark.parametrize("polynomial", [True, pytest.param(False, marks=pytest.mark.long)])
def test_runs_of_a_network_show_axes_and_components(polynomial, written):
    units = dynamics.Teacher([1.0, -0.6, 0.5], directions=[[1, 0], [0.6, 0.8], [0, 1]], links=["erf", "he3", "erf"])
    problem = dynamics.Problem(
        student=dynamics.Student(activation="erf", width=4, biases="fixed"),
        teacher=dynamics.Teacher.polynomial("x1 + x1*x2") if polynomial else units,
        dimension=20,
    )
    runs = sgd_check.simulate(problem, learning_rate=0.02, steps=1000, seeds=5, progress=False)
    page = written(runs)
    shown = {"Emergence times of the runs": ("p", [1, 2], runs.emergence_time.values)}
    if polynomial:
        names = ["x1", "x1*x2"]
        shown["Times at which components are learned"] = ("component", names, runs.component_learned_time.values)
    assert len(page.images) == 1 + len(shown)
    assert np.isfinite(runs.emergence_time).any()
    for caption, (head, names, times) in shown.items():
        rows = page.tables[caption]
        assert [row[head] for row in rows] == [str(name) for name in names]
        middle = np.sort(np.where(np.isnan(times), np.inf, times), axis=0)[2]
        found = [float(row["median"].replace("never", "inf")) for row in rows]
        np.testing.assert_allclose(found, middle, rtol=1e-4)


def test_runs_that_blew_up_say_so_first(tools, written):
    problem = tools.problem([[0.55, 0.05], [0.03, 0.5]], dimension=16)
    with pytest.warns(UserWarning, match="exceeds"):
        wild = sgd_check.simulate(problem, learning_rate=0.5, steps=400, seeds=3, progress=False)
    page = written(wild)
    assert page.text("strong") == ["Failed (blown up)."]
    assert "3 of 3 runs blew up." in page.text("li")
    assert any("the limit of stability" in text for text in page.text("li"))
    assert len(page.images) == 2


def test_unfinished_runs_go_on_by_their_command(tools, tmp_path):
    problem = tools.problem([[0.55, 0.05], [0.03, 0.5]], dimension=16)
    file = tmp_path / "runs.nc"
    sgd_check.simulate(
        problem, learning_rate=1e-5, steps=10**8, seeds=2, max_runtime=0.3, checkpoint=file, progress=False
    )
    page = read_page(dynamics.write_report(file, tmp_path / "page.html"))
    assert page.text("strong")[0].startswith("Unfinished")
    assert page.text("code") == [f"python -m sgd_check.run PREDICTION --resume {file}"]


def test_the_two_studies_of_transfer_are_told_apart(monkeypatch):
    """Both are named "transfer": the one of this package has no stability edge."""
    asked = []
    monkeypatch.setattr("sgd_check.report.findings.sgd_study_findings", asked.append)
    find_findings(xr.Dataset(attrs={"answer": "transfer"}))
    assert len(asked) == 1
