"""What the README and the help say beside an example, held against what the example prints and writes."""

import doctest
import re
import shlex
from itertools import pairwise, takewhile

import numpy as np
import pytest
import xarray as xr
from processes import ROOT, python

import dynamics
from dynamics.report.findings import find_findings

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"```bash\n(.*?)```", flags=re.DOTALL)
INTERPRETER = ".venv/bin/python "
NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"


def said(sentence, text=README):
    """The numbers in a sentence, which the text must hold word by word; # stands for a number, … for anything."""
    pattern = re.escape(" ".join(sentence.split())).replace(r"\#", f"({NUMBER})").replace("…", ".*?")
    found = re.search(pattern, " ".join(text.split()))
    assert found, f"not said: {sentence}"
    return [float(number) for number in found.groups()]


def commands_after(lead):
    """The lines of the block after some words, each without what installs the program before it."""
    lines = BLOCK.search(README, README.index(lead))[1].splitlines()
    commands = [line.rpartition(" && ")[2] for line in lines]
    assert all(command.startswith(INTERPRETER) for command in commands), commands
    return [command.removeprefix(INTERPRETER) for command in commands]


def run(command, folder):
    """What a command printed, and the datasets and figures that it wrote, by the ends of their names."""
    before = set(folder.iterdir())
    done = python(*shlex.split(command), cwd=folder, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout, {path.suffix: path for path in set(folder.iterdir()) - before}


def column(text, name):
    """The numbers in a column of the table that a command prints, by its head; "-" is not a number."""
    lines = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    at = next(at for at, heads in enumerate(lines) if name in heads)
    rows = list(takewhile(lambda row: len(row) == len(lines[at]), lines[at + 1 :]))
    assert rows
    texts = [row[lines[at].index(name)] for row in rows]
    return [np.nan if text == "-" else float(text) for text in texts]


@pytest.fixture(scope="module")
def main_command(tmp_path_factory):
    (command,) = commands_after("installs the program and runs the main command")
    text, files = run(command, tmp_path_factory.mktemp("main"))
    assert files.keys() == {".nc", ".png"}
    return text, dynamics.load(files[".nc"])


def test_each_direction_is_learned_abruptly_and_close_to_the_predicted_time(main_command):
    said("each direction is learned abruptly, close to the predicted time (ticks)")
    _, flow = main_command
    largest = (flow.teacher_overlap**2).max("neuron").transpose("direction", "time").values
    for curve in largest:
        first, last = (flow.time.values[np.argmax(curve > level)] for level in (0.25, 0.75))
        assert 0.0 < last - first < 0.25 * last
    ratios = (flow.emergence_time / flow.predicted_emergence_time).values
    assert np.median(ratios) == pytest.approx(1.0, abs=0.05)
    assert np.count_nonzero(ratios < 1.2) == ratios.size - 1


def test_the_fitted_exponent_is_of_one_start_and_few_steps(main_command):
    (steps,) = said(
        "The fitted exponent is not the asymptotic one: it is of one start and # steps, as the sum formula is"
    )
    said("other seeds give others; the asymptotic one is the limit of many directions and dimensions.")
    text, flow = main_command
    assert steps == flow.sizes["direction"]
    assert f"x is of one start, whose loss falls in {steps:g} steps" in text
    said("The asymptotic x is the limit of many directions P and a large dimension d", text)
    fitted, sums, limit = (
        float(re.search(rf"^loss ~ t\^x: .*{lead} ({NUMBER})", text, flags=re.MULTILINE)[1])
        for lead in ("x =", "this size", "asymptotic")
    )
    assert abs(fitted - sums) < 0.1 < 0.3 < abs(fitted - limit)
    # The sum formula alone, which needs no integration: over starts, and of many directions.
    few, many = (
        [find_findings(dynamics.predict_emergence(each)).values["exponents"][0]["fitted"] for each in problems]
        for problems in (
            [dynamics.Problem(**{**same_sizes(flow), "seed": seed}) for seed in range(8)],
            [same_law(flow, num_directions=256, width=768, dimension=1024, seed=seed) for seed in range(3)],
        )
    )
    assert np.ptp(few) > 0.3
    assert np.abs(np.array(many) - limit).max() < 0.1


def same_sizes(flow):
    asked = dynamics.Problem.from_dataset(flow)
    return {name: getattr(asked, name) for name in ("activation", "teacher", "width", "dimension")}


def same_law(flow, *, num_directions, **sizes):
    asked = dynamics.Problem.from_dataset(flow)
    teacher = dynamics.Teacher.power_law(num_directions, asked.teacher.beta)
    return dynamics.Problem(activation=asked.activation, teacher=teacher, **sizes)


def test_the_point_above_the_diagonal_is_a_direction_whose_neuron_went_to_another(main_command):
    late, other = said("The point far above the diagonal is direction #, whose neuron went to direction #.")
    text, flow = main_command
    ratios = column(text, "ratio")
    assert 1 + np.argmax(ratios) == late
    assert max(ratios) > 2.0
    said("ratio: the ratio of both times, far above 1 where another direction took or delayed that neuron.", text)
    neuron = int(flow.matched_neuron.sel(direction=late))
    assert flow.direction[np.argmax(flow.teacher_overlap.values[-1, neuron] ** 2)] == other


def test_table_and_figure_say_what_flow_time_is_in_samples(main_command):
    said("Time in samples of SGD stands at the top.")
    text, flow = main_command
    limit = dynamics.learning_rate_limit(dynamics.Problem.from_dataset(flow))
    sentence = re.search(r"t = 1 is ([\d,]+) at learning rate (\S+), a tenth of the largest stable one\.", text)
    count, rate = (float(number.replace(",", "")) for number in sentence.groups())
    assert rate == pytest.approx(0.1 * limit, rel=0.01)
    assert count == pytest.approx(1.0 / rate, rel=0.01)
    time, samples = said("The last emergence, t = #, is after # samples.", text)
    assert time == pytest.approx(np.nanmax(flow.emergence_time), rel=1e-4)
    assert samples == pytest.approx(time / rate, rel=0.01)
    top = find_findings(flow).drawn("screen").get_suptitle()
    assert f"$t = 1$ is {sentence[1]} samples of SGD at learning rate {sentence[2]}," in top


@pytest.mark.long
@pytest.mark.timeout(600)
def test_example_1_predicts_and_sgd_from_the_same_weights_agrees(tmp_path):
    lead = "The first command predicts and integrates a small problem. The second runs SGD from the same weights and compares"
    said(lead)
    said("Each command prints a table and writes a dataset and a figure.")
    first, second = commands_after("**1. Predict, then check with SGD.**")
    predicted, files = run(first, tmp_path)
    compared, files_of_check = run(second, tmp_path)
    assert files.keys() == files_of_check.keys() == {".nc", ".png"}
    assert column(predicted, "p") == column(compared, "p") == [1.0, 2.0]
    assert np.isfinite([*column(predicted, "predicted"), *column(predicted, "emerged")]).all()
    start = dynamics.Problem.from_dataset(dynamics.load(files[".nc"])).start().teacher_overlap
    with xr.open_datatree(files_of_check[".nc"], engine="h5netcdf") as check:
        starts = check["simulation"]["teacher_overlap"].isel(time=0).values
    np.testing.assert_allclose(starts, np.broadcast_to(start, starts.shape), rtol=1e-12)

    (error,) = said('We report "agree" only if the test could have detected a # % error')
    assert compared.startswith("Theory and SGD agree.")
    assert f"an error of {error:g} % would have been seen" in compared

    (report,) = re.findall(
        r"`\.venv/bin/(python -m dynamics\.report small\.nc)` writes a result as one HTML page", README
    )
    _, pages = run(report.removeprefix("python "), tmp_path)
    assert pages.keys() == {".html"}


def learned_in_turn(text):
    """When each component is learned, which are all and one after the other."""
    times = column(text, "learned")
    assert f"learned: {len(times)} of {len(times)} components" in text
    assert all(later > 1.5 * earlier for earlier, later in pairwise(times))
    return times


@pytest.mark.thorough
def test_example_2_learns_every_term_of_the_staircase_one_after_the_other(tmp_path):
    told = said("The table says when half of each term is learned, one after the other: at t = #, # and #.")
    (command,) = commands_after("**2. Any two-layer network.**")
    text, files = run(command, tmp_path)
    assert files.keys() == {".nc", ".png"}
    times = learned_in_turn(text)
    assert len(times) == 1 + re.search('--teacher "(.*?)"', command)[1].count("+")
    assert times == pytest.approx(told, rel=0.03)
    assert "learned: half of the teacher's value f* is first reached." in text


def test_example_3_gives_datasets_with_labels_units_and_the_whole_problem():
    said("Every answer is an `xarray.Dataset` with labels and units, and with the whole problem inside")
    example = doctest.DocTestParser().get_doctest(README, {}, "README", "README.md", 0)
    assert doctest.DocTestRunner().run(example, clear_globs=False).failed == 0
    names = example.globs
    for answer in (names["prediction"], names["flow"]):
        assert isinstance(answer, xr.Dataset)
        assert dynamics.Problem.from_dataset(answer) == names["problem"]
        assert all(
            "units" in variable.attrs and "long_name" in variable.attrs for variable in answer.variables.values()
        )
    assert "rhs_evaluations" in names["flow"].attrs
    assert "rhs_evaluations" not in names["prediction"].attrs  # "no integration"
