"""Files that the program wrote before its packages were re-arranged: they open, go on, and report.

`python tests/test_old_files.py` compares the resumed runs bit for bit, as is promised on the machine that wrote the
files and with its libraries, and writes the pages of all files.
"""

import json
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
from old_files import make
from public_face import run_command

import dynamics
import sgd_check

HERE = Path(make.__file__).parent
#: What says when, where, by which version and how fast; all else must be as it was.
CHANGING = set(
    ("history date_created source git_commit environment solve_seconds tracker_seconds compile_seconds " "wall_seconds steps_per_second").split(),
)  # fmt: skip
#: Sentences for readers, which may be worded anew.
WORDS = {"title", "references", "notes", "scaling_notes", "stop_message", "long_name"}
#: Rounding on another processor may lead to other steps, and so to errors that differ by about as much as they are: less
#: than half of `rtol` times the largest value of a variable, as solving these problems at 0.7 `rtol` shows. The bound is
#: two hundred times that.
SPARE = 100
#: For simulations, which have no `rtol`: rounding, summed over the steps. Torch carries single precision.
ROUNDING = {"simulation": 1e-12, "simulation-torch": 1e-6}
#: Other methods and engines, whose pages are those of "overlaps-explicit" and "simulation" with other numbers.
PAGES_LIKE_OTHERS = {"overlaps-bdf", "overlaps-stiff", "gradient-descent", "simulation-torch"}

# The version changes with every commit, and the resumed run says that last bits may differ, which is what is tested.
BEGUN_BY_ANOTHER_VERSION = "File .* was begun by feature-emergence .*"
begun_by_another_version = pytest.mark.filterwarnings(f"ignore:{BEGUN_BY_ANOTHER_VERSION}:UserWarning")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Name -> file, of every finished answer."""
    return {path.stem: path for path in make.unpack_files(tmp_path_factory.mktemp("finished"), "finished")}


@pytest.fixture
def unfinished(tmp_path):
    """Name -> file, of every run that was stopped; written anew for each test, since resuming replaces them."""
    return {path.stem: path for path in make.unpack_files(tmp_path, "unfinished")}


def resume(path):
    package = sgd_check if path.stem.startswith("simulation") else dynamics
    return package.resume(path, progress=False)


def bound_of(name, stored):
    """Return by how much a resumed run may differ, relative to the largest value of a variable."""
    return SPARE * ROUNDING.get(name, stored.attrs.get("rtol"))


def assert_same(found, stored, bound=0.0):
    """Compare all variables and lasting attributes: bit for bit, or numbers up to a share of the largest in a variable."""
    assert set(found.variables) >= set(stored.variables)  # later versions may say more
    for name, variable in stored.variables.items():
        other = found[name].variable
        assert (other.dims, lasting(other.attrs)) == (variable.dims, lasting(variable.attrs)), name
        if bound > 0.0 and variable.dtype.kind == "f":
            # An estimate of an error is as uncertain as the error: it may move with what it is an error of.
            size = largest(stored.get(name.removesuffix("_error"), variable).values)
            np.testing.assert_allclose(other.values, variable.values, rtol=0.0, atol=bound * size, err_msg=name)
        else:
            np.testing.assert_array_equal(other.values, variable.values, err_msg=name)
    assert set(found.attrs) >= set(stored.attrs)
    for name, value in lasting(stored.attrs).items():
        # Another processor may need another step; numbers among the attributes count steps or measure the answer.
        if name == "parameters":
            later, then = json.loads(found.attrs[name]), json.loads(value)
            assert all(later[part].items() >= entries.items() for part, entries in then.items()), name
        elif bound == 0.0 or isinstance(value, str):
            assert found.attrs[name] == value, name


def lasting(attributes):
    return {name: value for name, value in attributes.items() if name not in CHANGING | WORDS}


def largest(values):
    return np.max(np.abs(values), where=np.isfinite(values), initial=0.0)


def test_the_committed_files_are_those_that_are_made(finished, unfinished):
    assert set(finished) == set(make.RUNS | make.ANSWERS)
    assert set(unfinished) == set(make.RUNS)
    for path in unfinished.values():
        assert dynamics.load(path).attrs["stop_reason"] in ("interrupted", "max_runtime")


def test_every_file_opens(finished, unfinished):
    for path in (*finished.values(), *unfinished.values()):
        assert dynamics.load(path).attrs or path.stem == "comparison", path


@pytest.mark.parametrize("kind", ["finished", "unfinished"])
def test_files_hold_the_problem_that_was_asked(kind, request):
    for name, path in request.getfixturevalue(kind).items():
        asked = (make.RUNS | make.ANSWERS)[name]
        if name == "sweep" or not getattr(asked, "args", ()):
            continue
        found, (expected, *_) = dynamics.Problem.from_dataset(dynamics.load(path)), asked.args
        np.testing.assert_array_equal(found.activation.coefficients, expected.activation.coefficients)
        for array in ("coefficients", "directions"):
            np.testing.assert_array_equal(getattr(found.teacher, array), getattr(expected.teacher, array))
        np.testing.assert_array_equal(found.initial_weights, expected.initial_weights)
        for field in ("width", "dimension", "initial_norm", "seed", "label_noise", "student"):
            assert getattr(found, field) == getattr(expected, field), (name, field)


@pytest.mark.thorough
@begun_by_another_version
@pytest.mark.parametrize("name", make.RUNS)
def test_a_run_of_an_old_file_ends_as_it_did_then(name, finished, unfinished):
    stored = dynamics.load(finished[name])
    assert np.isnan(dynamics.load(unfinished[name])["loss"]).any()
    found = resume(unfinished[name])
    assert_same(found, stored, bound_of(name, stored))
    assert_same(dynamics.load(unfinished[name]), found)


def run(*command):
    code, out, err = run_command(*command)
    assert code == 0, err
    return out


@begun_by_another_version
def test_the_command_goes_on_with_an_old_file(finished, unfinished):
    path = unfinished["overlaps-explicit"]
    run("dynamics.solve", "--resume", str(path), "--no-plot", "--quiet")
    stored = dynamics.load(finished[path.stem])
    assert_same(dynamics.load(path), stored, bound_of(path.stem, stored))


def test_old_files_are_compared_anew(finished):
    stored = dynamics.load(finished["comparison"])
    found = sgd_check.compare(stored["prediction"].to_dataset(), stored["simulation"].to_dataset())
    for part in ("prediction", "simulation"):
        assert_same(found[part].to_dataset(), stored[part].to_dataset(), 1e-12)
    # Noise decides when that direction emerges, and later versions do not test it.
    now, then = (tree["comparison"].to_dataset() for tree in (found, stored))
    assert (now["expected_scatter"] > 1).all()
    of_the_test = ["band_low", "band_high", "mean_log_ratio", "standard_error", "z_score", "direction_p_value"]
    for dataset in (now, then):
        del dataset.attrs["reasons"]
    assert_same(now.drop_vars([*of_the_test, "early_power"]), then.drop_vars([*of_the_test, "early_power"]), 1e-12)


def test_old_toml_files_are_read(finished, tmp_path):
    assert run("dynamics.study", str(HERE / "study.toml"), "--dry-run").startswith("points: 2 (2 beta)\n")
    target = tmp_path / "found.nc"
    run("dynamics.solve", "--config", str(HERE / "solve.toml"), "--output", str(target), "--no-plot", "--quiet")
    loss, stored = (dynamics.load(path)["loss"] for path in (target, finished["overlaps-explicit"]))
    np.testing.assert_allclose(loss, stored, rtol=0.0, atol=SPARE * 1e-8 * float(stored.max()))


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)])
def test_every_kind_of_old_file_has_its_page(every, finished, unfinished, tmp_path):
    """Of two kinds, or of all but those whose pages are made by the same code."""
    shown = [path for name, path in finished.items() if name not in PAGES_LIKE_OTHERS] if every else []
    write_pages([*shown, unfinished["overlaps-explicit"], unfinished["simulation"]], tmp_path)
    run("dynamics.report", str(finished["prediction"]), "--output", str(tmp_path / "page.html"))


def write_pages(paths, folder):
    for path in paths:
        page = dynamics.write_report(path, folder / f"{path.parent.name}-{path.stem}.html")
        assert page.stat().st_size > 5000


def test_no_file_names_a_place_of_the_machine_that_wrote_it(finished, unfinished):
    for path in (*finished.values(), *unfinished.values()):
        content = path.read_bytes()
        assert not [place for place in (b"/home/", b"/root/", b"/tmp/", b"/work/") if place in content], path


def main():
    """Resume every unfinished file, write the pages of all, and print which runs differ from the stored answers."""
    warnings.filterwarnings("ignore", message=BEGUN_BY_ANOTHER_VERSION)
    with tempfile.TemporaryDirectory() as folder:
        paths = {}
        for kind in ("finished", "unfinished", "pages"):
            (Path(folder) / kind).mkdir()
            paths[kind] = {path.stem: path for path in make.unpack_files(Path(folder) / kind, kind)}
        write_pages([*paths["finished"].values(), *paths["unfinished"].values()], Path(folder) / "pages")
        unequal = []
        for name, path in paths["unfinished"].items():
            try:
                assert_same(resume(path), dynamics.load(paths["finished"][name]))
            except AssertionError as error:
                unequal.append(name)
                print(f"{name} differs: {error}")
    print(f"{len(make.RUNS) - len(unequal)} of {len(make.RUNS)} resumed runs equal the stored answers bit for bit")
    return bool(unequal)


if __name__ == "__main__":
    sys.exit(main())
