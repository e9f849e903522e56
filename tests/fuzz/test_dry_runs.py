"""Dry runs of sizes beyond any machine: each answers, or is refused in one sentence, before `fuzz_guard` ends it.

A third of them are tried, all with FULL_TESTS=1.
"""

import contextlib
import os

import pytest
from fuzz_guard import LONGEST_SENTENCE, OutOfTimeError, ended, report
from processes import SMALL_STUDY

from dynamics import mean_field_study, study
from dynamics.commands import options
from dynamics.laws import __main__ as laws
from dynamics.solve import __main__ as solve
from sgd_check import study as sgd_study

with contextlib.suppress(ImportError):
    import torch  # noqa: F401  (which takes seconds to load, and longer where others load it)

#: Sizes by the function that reads the option.
SIZES = {
    options.positive_integer: ("1e6", "1e15"),
    options.natural_number: ("1e15",),
    options.integers: ("1000000,2000000,4000000,8000000",),
    options.positive: ("1e-12", "1e12"),
    options.save_schedule: ("geometric:1e7", "linear:1e7", "geometric:1e8", "1e300"),
}
MODELS = {model: ["--model", model] for model in options.MODELS}
MODELS["network"] += ["--teacher", "x1*x2", "--activation", "relu"]
MODELS["reused-data"] += ["--samples", "4d"]


def lines():
    """Yield every command with a dry run, alone and with each size of each of its options."""
    for model, words in MODELS.items():
        table = [option for option in options.OPTIONS if model in option.models]
        yield model, solve.main, words, table
    for catalogue, main in (
        (laws.CATALOGUE, laws.main),
        (mean_field_study.CATALOGUE, mean_field_study.main),
        (sgd_study.CATALOGUE, sgd_study.main),
    ):
        for name, one in catalogue.studies.items():
            yield name, main, [name], one.options


def told(main, words):
    """Return the fault of a dry run in words, None for a right one."""
    try:
        end = ended(main, [*words, "--dry-run"])
    except OutOfTimeError:
        return "takes too long"
    except BaseException as error:
        return f"raises {error!r}"
    is_sentence = end.err.startswith("error: ") and end.err.count("\n") == 1 and len(end.err) <= LONGEST_SENTENCE
    return None if end.code == 0 or (end.code == 2 and is_sentence) else f"ends with {end}"


@pytest.mark.thorough
@pytest.mark.longer
@pytest.mark.parametrize(("main", "words", "table"), [each[1:] for each in lines()], ids=[each[0] for each in lines()])
def test_every_size(main, words, table, here, record_property):
    given = [[], *([f"--{option.name}={size}"] for option in table for size in SIZES.get(option.read, ()))]
    given = given if "FULL_TESTS" in os.environ else given[::3]
    complaints = {str(more): complaint for more in given if (complaint := told(main, [*words, *more]))}
    record_property("dry runs", len(given))
    assert not complaints, report(complaints)
    assert not list(here.iterdir())


GRIDS = {
    "points": SMALL_STUDY.replace("seed = [0, 1]", "seed = { range = [0, 1000000] }"),
    "axes": SMALL_STUDY.replace(
        "seed = [0, 1]", "seed = { range = [0, 1000] }\nlabel_noise = { linear = [0, 1, 1000] }"
    ),
    "too many points": SMALL_STUDY.replace("seed = [0, 1]", "seed = { range = [0, 1000000000] }"),
    "widths": SMALL_STUDY.replace("width = 3", "width = 1000000000000"),
    "times": SMALL_STUDY.replace("prediction", "overlaps") + "save_at = { geometric = [1, 10, 100000000] }\n",
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", GRIDS)
def test_every_grid(name, here):
    (here / "study.toml").write_text(GRIDS[name])
    assert told(study.main, ["study.toml"]) is None
    assert [path.name for path in here.iterdir()] == ["study.toml"]
