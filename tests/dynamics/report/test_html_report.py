"""Pages on results hold the numbers of the result, escape everything, and need nothing beside them."""

import json
import re
from xml.etree import ElementTree

import netCDF4
import numpy as np
import pytest
import xarray as xr
from html_reader import Page, read_page
from matplotlib.figure import Figure
from old_files import make

import dynamics
from dynamics import Callback
from dynamics.report import __main__ as report
from dynamics.report.elements import Chart, ChartCurve, chart_element
from dynamics.report.findings import FINDINGS, answer_of, find_findings, study_findings
from dynamics.report.page import subtitle

AT = dynamics.SaveAt.geometric
TWO = dynamics.Teacher([0.8, 0.6])


def two_directions(**changed):
    given = {"activation": "he4", "teacher": TWO, "width": 8, "dimension": 16}
    return dynamics.Problem(**(given | changed))


@pytest.fixture(scope="module")
def flow():
    return dynamics.solve_overlaps(two_directions(), progress=False)


@pytest.fixture
def written(tmp_path):
    def write(result):
        return read_page(dynamics.write_report(result, tmp_path / "page.html", overwrite=True))

    return write


def verdict(page):
    return page.text("strong")[0]


def numbers(rows, title):
    return [float(row[title].replace("never", "inf").replace("–", "nan")) for row in rows]


def test_a_flow_shows_its_times_exponents_problem_and_variables(flow, written):
    page = written(flow)
    assert page.text("h1") == page.text("title") == [flow.attrs["title"]]
    assert verdict(page) == "Reached its end. Every requested time was reached."
    rows = page.tables["Emergence times against prediction"]
    for title, name in (
        ("a_p", "teacher_coefficient"),
        ("T_p, leading order", "leading_order_time"),
        ("T_p, exact pair", "predicted_emergence_time"),
        ("emerged", "emergence_time"),
        ("learned", "learned_time"),
    ):
        np.testing.assert_allclose(numbers(rows, title), flow[name], rtol=1e-4)
    ratio = flow["emergence_time"] / flow["predicted_emergence_time"]
    np.testing.assert_allclose(numbers(rows, "emerged / pair"), ratio, rtol=1e-4)
    assert f"{flow.loss.values[-1]:.4g}" in page.text("p")[2]
    assert any("numerical error of the loss" in text for text in page.text("p"))
    asked, settings, origin = (
        {row["name"]: row["value"] for row in page.tables[title]}
        for title in ("What was asked", "Settings and counts", "Where the result comes from")
    )
    assert (asked["link σ"], asked["width m"], asked["input dimension d"]) == ("he4", "8", "16")
    assert asked["teacher coefficients a_p"] == "0.8, 0.6"
    assert settings["method"] == flow.attrs["method"]
    assert settings["rhs evaluations"] == str(flow.attrs["rhs_evaluations"])
    assert (origin["written by"], origin["command"]) == (flow.attrs["source"], flow.attrs["history"])
    assert "numpy " + json.loads(flow.attrs["environment"])["numpy"] in origin["machine and versions"]
    assert float(origin["solve seconds"]) == pytest.approx(flow.attrs["solve_seconds"], rel=1e-4)
    variables = {row["name"]: row for row in page.tables["Variables"]}
    assert set(variables) == set(map(str, flow.variables))
    overlap = variables["teacher_overlap"]
    assert (overlap["meaning"], overlap["units"]) == ("overlap of neuron and direction", "1")
    assert overlap["shape"] == f"(time: {flow.sizes['time']}, neuron: 8, direction: 2)"
    least, largest = flow.teacher_overlap.min(), flow.teacher_overlap.max()
    np.testing.assert_allclose([float(overlap["least"]), float(overlap["largest"])], [least, largest], rtol=1e-4)
    assert [caption.split()[0] for caption in page.text("figcaption")] == ["Largest", "Loss", "Measured"]
    assert "2 of 2 curves pass one half" in page.images[0][0]
    for _, kind, data in page.images:
        assert kind == "svg+xml"
        assert ElementTree.fromstring(data).tag == "{http://www.w3.org/2000/svg}svg"


@pytest.mark.thorough
def test_exponents_stand_beside_the_finite_size_and_the_asymptotic_ones(written):
    many = two_directions(teacher=dynamics.Teacher.power_law(64, 1.0), width=256, dimension=1024)
    pairs = dynamics.solve_decoupled(many)
    page = written(pairs)
    assert verdict(page).startswith("Complete")
    law = page.tables["Exponents"][0]
    fit = dynamics.fit_power_law(pairs.time, pairs.loss, window=(float(law["from"]), float(law["to"])))
    assert float(law["x, fitted"]) == pytest.approx(fit.exponent, rel=0.01)
    assert float(law["x, asymptotic"]) == -1.0
    assert len(page.tables["Emergence times against prediction"]) < 64
    assert any("of 64 directions, spread over p" in text for text in page.text("p"))


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Name -> file, of answers of every kind."""
    return {path.stem: path for path in make.unpack_files(tmp_path_factory.mktemp("stored"), "finished")}


@pytest.mark.parametrize(
    ("name", "figures", "table", "curves"),
    [
        ("prediction", 2, "Predicted times", 0),
        ("decoupled", 3, "Emergence times against prediction", 2),
        # Its flow takes the implicit method, which compiles for half a minute.
        pytest.param("committee", 2, "Emergence times against prediction", 2, marks=pytest.mark.thorough),
        ("spherical", 2, "When the loss falls below a fraction", 2),
        ("mean-field-homogeneous", 2, "Times at which half the weight is carried", 2),
        ("coupling", 1, "Distances over time", 0),
        ("chaos", 1, "Points", 0),
        ("laws-finite-size", 1, "Points", 0),
        ("sweep", 2, "Points", 0),
    ],
)
def test_every_answer_has_its_tables_figures_and_curves(name, figures, table, curves, stored, written):
    result = dynamics.load(stored[name])
    assert answer_of(result) in FINDINGS
    page = written(result)
    assert "could not be made" not in " ".join(page.text("li"))
    assert len(page.images) == figures
    assert page.tables[table]
    assert len(paths(page)) == curves
    assert page.text("h2")[0] == "Findings"


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:The converged student loses stability")
def test_a_sweep_lists_its_points_and_names_those_that_failed(tmp_path, written):
    grid = {"learning_rate": [1e-4, 1e-3], "num_directions": [1, 2], "beta": [1.0]}
    with pytest.warns(RuntimeWarning, match="2 of 4 points failed"):
        found = dynamics.sweep(
            two_directions(), grid, options={"save_at": AT(0.1, 12, 20), "error_estimate": False}, workers=0,
            progress=False, output=tmp_path / "sweep.nc",
        )  # fmt: skip
    with found:
        page = written(found)
    assert verdict(page) == "2 of 4 points were answered. 2 failed."
    rows = page.tables["Points"]
    assert [row["learning rate"] for row in rows] == ["0.0001", "0.0001", "0.001", "0.001"]
    assert rows[0]["outcome"] == "reached end"
    assert "not_finite" in rows[3]["outcome"]
    assert rows[1]["emerged"] == "2 of 2"
    assert len(page.images) == 2


@pytest.mark.parametrize(("word", "tone"), [("fast", "good"), ("undecided", "caution")])
def test_a_study_with_a_verdict_begins_with_it(word, tone):
    summary = {"points": [{"best_rate": 1.0}], "fits": [{"x": 2.0}], "verdict": word}
    study = xr.Dataset(attrs={"answer": "a-study", "verdict": word, "stop_reason": "reached_end"})
    found = study_findings(study, summary, ["One sentence.", "Another."], Figure)
    assert (found.tone, found.verdict[: len(word)].lower()) == (tone, word)
    assert found.sentences == ["One sentence.", "Another."]
    assert found.values.items() >= summary.items()
    assert [(one.caption, list(one.rows[0])) for one in found.tables] == [("Points", ["best rate"]), ("Fits", ["x"])]


@pytest.mark.thorough
def test_a_run_that_failed_says_so_first(written):
    with pytest.warns(RuntimeWarning, match="loses stability"):
        wild = dynamics.solve_overlaps(two_directions(), learning_rate=1e-3, on_failure="return", progress=False)
    page = written(wild)
    assert verdict(page).startswith(f"Failed at t = {wild.attrs['end_time']:.5g} (not finite).")
    assert {"class": "verdict bad"} in page.all("div")
    cautions = page.text("li")
    censored = "2 of 2 directions did not emerge by the end: their times are unknown (censored)."
    assert any(caution.startswith(censored) for caution in cautions)
    assert any("exceeds 0.000303, the limit of stability" in text for text in cautions)
    emerged = numbers(page.tables["Emergence times against prediction"], "emerged")
    assert emerged == pytest.approx([np.nan] * 2, nan_ok=True)


@pytest.mark.thorough
def test_an_unfinished_run_says_how_it_goes_on(tmp_path):
    def stopped(*_):
        raise StopIteration

    file = tmp_path / "it's a run.nc"
    stop = Callback(stopped)
    dynamics.solve_overlaps(two_directions(), trackers=[stop], checkpoint=file, progress=False)
    page = read_page(dynamics.write_report(file, tmp_path / "page.html"))
    assert verdict(page).startswith("Unfinished: stopped early")
    assert page.text("code") == [f"python -m dynamics.solve --resume '{tmp_path}/it'\"'\"'s a run.nc'"]
    assert not any("checkpoint" in row["name"] for row in page.tables["Variables"])
    # Without the checkpoint nothing can go on, and the page of a dataset says nothing of files.
    bare = dynamics.load(file)
    bare = bare[["time"]].assign_attrs(answer="unheard")
    dynamics.save(bare, tmp_path / "bare.nc")
    page = read_page(dynamics.write_report(tmp_path / "bare.nc", tmp_path / "bare.html"))
    assert "The file holds no checkpoint, so the run cannot go on from it." in page.text("p")
    assert "checkpoint" not in dynamics.write_report(bare, tmp_path / "none.html").read_text(encoding="utf-8")


def paths(page, kind="curve"):
    """Points of every path, in the units of the chart, as arrays of (x, y)."""
    found = [tag["d"] for tag in page.all("path") if tag["class"] == kind]
    return [[point.split() for point in re.split("[MLV]", d)[1:]] for d in found]


@pytest.mark.thorough
def test_every_direction_is_a_curve_that_says_its_numbers(flow, written):
    page = written(flow)
    assert page.text("h2")[1] == "Explore"
    (chart,) = (div for div in page.all("div") if "data-limits" in div)
    assert chart["hidden"] == "hidden"
    x0, x1, low, high = map(float, chart["data-limits"].split())
    later = flow["time"].values > 0
    time, squared = flow["time"].values[later], (flow["teacher_overlap"] ** 2).max("neuron").values[later]
    np.testing.assert_allclose([10**x0, 10**x1], time[[0, -1]])
    curves = [tag for tag in page.all("path") if tag["class"] == "curve"]
    for p, (curve, points) in enumerate(zip(curves, paths(page), strict=True)):
        at, value = np.array(points, dtype=float).T
        drawn = np.interp(np.log10(time), x0 + (x1 - x0) * at / 1000, high - (high - low) * value / 1000)
        # A two hundredth of the height is two pixels.
        np.testing.assert_allclose(drawn, squared[:, p], atol=5e-3)
        assert curve["data-facts"] == (
            f"direction {p + 1}; a_p = {flow.teacher_coefficient.values[p]:.5g}; predicted T_p = "
            f"{flow.predicted_emergence_time.values[p]:.5g}; emerged at t = {flow.emergence_time.values[p]:.5g}; "
            f"learned at t = {flow.learned_time.values[p]:.5g}"
        )
    ticks = [float(points[0][0]) for points in paths(page, "tick")]
    places = (np.log10(flow.predicted_emergence_time) - x0) / (x1 - x0)
    np.testing.assert_allclose(ticks, 1000 * places, atol=0.1)


def test_what_a_curve_says_is_escaped():
    curve = ChartCurve(values=np.array([0.0, np.nan, 1.0, 1.0]), facts={HOSTILE: HOSTILE})
    chart = Chart(title="t", x="x", y="y", time=np.array([1.0, 2.0, 4.0, 10.0]), limits=(0.0, 1.0), curves=[curve])
    made = ElementTree.tostring(chart_element(chart), encoding="unicode", method="html")
    page = Page(made)
    assert {tag for tag, _ in page.tags} <= {"div", "p", "svg", "rect", "g", "path", "text", "button"}
    (path,) = (tag for tag in page.all("path") if tag["class"] == "curve")
    assert path["data-facts"] == f"{HOSTILE} {HOSTILE}"
    # What is unknown breaks the curve.
    assert path["d"] == "M0.0 1000.0M602.1 0.0L1000.0 0.0"


HOSTILE = "</style></title><script>alert(1)</script><img src=http://x.test onerror='1'>&amp;\"'"


@pytest.mark.thorough
def test_text_of_a_result_is_escaped_wherever_it_stands(flow, written):
    evil = flow.rename({"gram_margin": f"g{HOSTILE}"})
    parameters = json.loads(flow.attrs["parameters"])
    parameters["problem"]["activation"]["name"] = HOSTILE
    parameters["solver"][HOSTILE] = HOSTILE
    names = ("title", "notes", "history", "source", "git_commit", "environment", HOSTILE)
    evil.attrs |= dict.fromkeys(names, HOSTILE)
    evil.attrs["parameters"] = json.dumps(parameters)
    evil["loss"].attrs["long_name"] = HOSTILE
    page = written(evil)
    assert page.text("h1") == page.text("title") == [HOSTILE]
    assert page.text("style")[0].startswith(":root")
    assert f"Notes{HOSTILE}" not in page.text("h2")
    assert HOSTILE in page.text("li")
    assert {row["name"] for row in page.tables["Variables"]} >= {f"g{HOSTILE}"}
    assert any(row["meaning"] == HOSTILE for row in page.tables["Variables"])
    assert {row["value"] for row in page.tables["What was asked"]} >= {HOSTILE}
    assert page.all("meta")[2]["content"].startswith("default-src 'none'")


@pytest.mark.parametrize("parameters", ["", "[]", "{", '{"problem": 3, "solver": {}}', '{"problem": {}}'])
def test_a_result_that_lacks_what_its_answer_promises_shows_the_rest(flow, written, parameters):
    broken = flow.drop_vars("emergence_time").assign_attrs(parameters=parameters, end_time="soon")
    page = written(broken)
    assert {"class": "verdict caution"} in page.all("div")
    assert any("Tables and figures could not be made" in text for text in page.text("li"))
    assert not page.images
    assert "What was asked" not in page.tables
    assert subtitle(broken) == ""
    assert len(page.tables["Variables"]) == len(broken.variables)


def test_an_answer_that_nobody_knows_shows_what_it_says_of_itself(written):
    values = {"flag": ("x", [True, False]), "word": ("x", ["a", "b"]), "none": ("y", np.array([])), "one": 3.5}
    page = written(
        xr.Dataset(values, attrs={"answer": "unheard", "list": [1.0, np.inf, np.nan], "truth": True, "open": "{"})
    )
    assert page.text("h1") == ["Result"]
    assert "No family of results knows this answer." in page.text("li")
    assert page.text("h2")[0] == "Settings"
    settings = {row["name"]: row["value"] for row in page.tables["Settings and counts"]}
    assert settings == {"list": "1, never, –", "truth": "yes", "open": "{"}
    variables = {row["name"]: row for row in page.tables["Variables"]}
    shown = variables["word"]["least"], variables["one"]["shape"], variables["none"]["largest"]
    assert shown == ("–", "one value", "–")
    assert written(xr.Dataset()).text("h1") == ["Result"]


@pytest.mark.thorough
def test_the_same_result_gives_the_same_bytes_and_files_are_not_replaced(flow, tmp_path):
    one, two = (dynamics.write_report(flow, tmp_path / name) for name in ("one.html", "two.html"))
    assert one.read_bytes() == two.read_bytes()
    with pytest.raises(dynamics.StorageError, match="must not name an existing file"):
        dynamics.write_report(flow, one)
    with pytest.raises(TypeError, match="`result` must be a Dataset, a DataTree or a path, but is int"):
        dynamics.write_report(3, tmp_path / "three.html")
    assert {file.name for file in tmp_path.iterdir()} == {"one.html", "two.html"}


@pytest.fixture
def plain():
    return xr.Dataset({"one": 1.0}, attrs={"schema_version": 1, "answer": "unheard"})


def test_the_command_writes_beside_the_result(plain, tmp_path, capsys, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    file = dynamics.save(plain, tmp_path / "run.nc")
    assert report.main([str(file)]) == 0
    page = tmp_path / "run.html"
    assert capsys.readouterr().out == f"{page}\n"
    assert read_page(page).text("p")[0] == "run.nc"
    assert report.main([str(file), "--overwrite", "--open"]) == 0
    assert opened == [page.as_uri()]


def test_bad_input_is_one_sentence_and_nothing_is_replaced(plain, tmp_path, capsys, monkeypatch):
    file = dynamics.save(plain, tmp_path / "run.nc")
    (tmp_path / "kept.html").write_text("kept", encoding="utf-8")
    (tmp_path / "text.nc").write_text("no netCDF", encoding="utf-8")
    with netCDF4.Dataset(tmp_path / "foreign.nc", "w") as foreign:
        foreign.title = "of another program"
    for arguments, words in (
        (["."], "Argument FILE must name a file"),
        ([], "the following arguments are required: FILE"),
        ([str(tmp_path / "absent.nc")], "must name an existing file"),
        ([str(tmp_path / "text.nc")], "must be a readable netCDF file"),
        ([str(tmp_path / "foreign.nc")], "must have been written by this program"),
        ([str(file), "--output", str(tmp_path / "kept.html")], "must not name an existing file"),
        ([str(file), "--output", str(tmp_path / "no" / "x.html")], "must lie in an existing directory"),
        (
            [str(file), "--output", str(tmp_path / "x.pdf")],
            "must name a page, such as run.html, which browsers print, but is",
        ),
        ([str(file), "--output", str(file), "--overwrite"], "must not be the file of the result"),
        ([str(file), "--colour"], "unrecognized arguments"),
    ):
        assert report.main(arguments) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("error: ")
        assert words in err
        assert err.count("\n") == 1
    assert (tmp_path / "kept.html").read_text(encoding="utf-8") == "kept"
    before = file.read_bytes()
    with pytest.raises(dynamics.StorageError, match="must not be the file of the result"):
        dynamics.write_report(file, file, overwrite=True)
    assert file.read_bytes() == before

    def full(*_, **__):
        msg = "File 'run.html' could not be written: No space left on device."
        raise dynamics.StorageError(msg)

    monkeypatch.setattr("dynamics.report.page.write_page", full)
    assert report.main([str(file)]) == 1
    assert "No space left" in capsys.readouterr().err


def test_find_findings_asks_installed_packages_too(monkeypatch, flow):
    class Entry:
        value = "dynamics.report.flows:flow_findings"

    asked = []
    monkeypatch.setattr(
        "dynamics.report.findings.metadata.entry_points", lambda **given: asked.append(given) or [Entry()]
    )
    strange = flow.assign_attrs(answer="of-a-plugin")
    assert find_findings(strange).verdict.startswith("Reached its end.")
    assert asked == [{"group": "feature_emergence.findings", "name": "of-a-plugin"}]
