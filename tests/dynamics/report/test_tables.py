"""Answers as tables: every cell is the number of the dataset, for every kind of file, and commands write them as CSV."""

import json
import re

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from old_files import make

import dynamics
from dynamics.runs.storage import main_part
from dynamics.solve import __main__ as solve
from dynamics.tokens import __main__ as tokens

#: What a row is, for each kind of file.
ROWS = {
    "chaos": ["time"],
    "comparison": ["direction"],
    "coupling": ["time"],
    "laws-compute-frontier": ["law", "source"],
    "laws-finite-size": ["beta", "num_directions", "source"],
    "laws-scaling": ["law", "source"],
    "laws-transfer": ["width"],
    "sgd-sample-complexity": ["information_exponent", "dimension", "run", "direction"],
    "sgd-step-size": ["learning_rate", "run", "direction"],
    "sgd-transfer": ["width"],
    "sgd-unstable-discretisation": ["target", "run", "direction"],
    "simulation": ["seed", "direction"],
    "simulation-diffusion": ["seed", "direction"],
    "simulation-torch": ["seed", "direction"],
    "sweep": ["beta", "direction"],
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    files = make.unpack_files(tmp_path_factory.mktemp("finished"), "finished")
    return {path.stem: dynamics.load(path) for path in files}


def same(cell, value):
    return cell == value or (pd.isna(cell) and pd.isna(value))


def assert_cells(table, dataset, rows):
    """Hold every cell against the dataset, by index."""
    indices = list(np.ndindex(*(dataset.sizes[dim] for dim in rows)))
    assert len(table) == len(indices)
    for at, index in enumerate(indices):
        where = dict(zip(rows, index, strict=True))
        for name in table.columns:
            if name in dataset.variables:
                variable = dataset[name]
                value = variable[{dim: k for dim, k in where.items() if dim in variable.dims}].values[()]
                assert same(table[name].iloc[at], value), (name, where)
            else:
                assert table[name].iloc[at] == where[name]


def test_every_kind_of_file_has_a_natural_table_whose_cells_are_those_of_the_answer(answers):
    for name, answer in answers.items():
        rows, dataset, table = (
            ROWS.get(name, ["direction"]),
            main_part(answer),
            dynamics.to_table(answer, bookkeeping=True),
        )
        assert list(table.columns[: len(rows)]) == rows, name
        wanted = {key for key, one in dataset.data_vars.items() if one.dims and set(one.dims) <= set(rows)}
        assert wanted <= set(table.columns), name
        assert set(table.columns) <= wanted | set(rows) | set(dataset.coords), name
        assert_cells(table, dataset, rows)


def test_a_table_of_a_sweep_tells_how_points_were_computed_only_if_asked(answers):
    usual, full = (dynamics.to_table(answers["sweep"], bookkeeping=asked) for asked in (False, True))
    assert {"beta", "direction", "emergence_time", "stop_reason", "end_time", "failure"} <= set(usual.columns)
    left_out = set(full.columns) - set(usual.columns)
    assert {"git_commit", "rtol", "atol", "rhs_evaluations", "solve_seconds", "stop_message", "answer"} <= left_out
    pd.testing.assert_frame_equal(usual, full[list(usual.columns)])
    flow = answers["overlaps-explicit"]
    pd.testing.assert_frame_equal(dynamics.to_table(flow), dynamics.to_table(flow, bookkeeping=True))


def test_a_table_is_per_whatever_is_asked_for(answers):
    flow = answers["overlaps-explicit"]
    for rows in (["time"], ["neuron", "time"], ["time", "neuron", "direction"]):
        table = dynamics.to_table(flow, per=rows)
        assert_cells(table, flow, rows)
    assert {"teacher_overlap", "loss", "teacher_coefficient", "squared_norm"} <= set(table.columns)
    assert table.attrs["long_name"]["teacher_overlap"] == "overlap of neuron and direction"
    judged = dynamics.to_table(answers["comparison"], per=())
    assert judged["p_value"].tolist() == [answers["comparison"]["comparison"].p_value.item()]
    runs = dynamics.to_table(answers["comparison"]["simulation"], per="seed")
    assert len(runs) == 4
    assert dynamics.to_table(flow.isel(time=0), per="neuron")["time"].tolist() == [flow.time.values[0]] * 4
    assert dynamics.to_table(xr.Dataset()).shape == (1, 0)


def test_what_is_no_answer_or_no_dimension_is_refused_in_a_sentence(answers):
    flow = answers["decoupled"]
    with pytest.raises(TypeError, match=r"^Argument `answer` must be a Dataset or DataTree, but is list\.$"):
        dynamics.to_table([1.0])
    with pytest.raises(
        ValueError, match=r"^Argument `per` must name dimensions of the answer, direction, time, but has 'neuron'\.$"
    ):
        dynamics.to_table(flow, per="neuron")
    with pytest.raises(TypeError, match=r"^Argument `per` must be a dimension or a sequence of them, but is 3\.$"):
        dynamics.to_table(flow, per=3)
    with pytest.raises(TypeError, match=r"^Argument `bookkeeping` must be True or False, but is "):
        dynamics.to_table(flow, bookkeeping="yes")
    with pytest.raises(ValueError, match=r"^Argument `per` must name each dimension once, but is "):
        dynamics.to_table(flow, per=["time", "time"])


def test_commands_write_the_table_beside_the_answer(here, capsys):
    asked = ["--model", "decoupled", "--directions", "3", "--dimension", "32", "--output", "run.nc", "--no-plot"]
    assert solve.main([*asked, "--csv", "run.csv", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["csv"] == "run.csv"
    pd.testing.assert_frame_equal(pd.read_csv("run.csv"), dynamics.to_table(dynamics.load("run.nc")))
    assert solve.main([*asked, "--csv", "run.csv", "--overwrite", "--quiet"]) == 0
    asked[-2] = "other.nc"
    assert solve.main([*asked, "--csv", "run.csv"]) == 2
    assert "Option --csv" in (refusal := capsys.readouterr().err), refusal
    assert "exist" in refusal
    for name, rest in (
        ("other.nc", r"a file of its own, but 'other.nc' is that of another result\."),
        (".", r"a file, but is '\.'\."),
    ):
        assert solve.main([*asked, "--csv", name]) == 2
        assert re.search(f"Option --csv must name {rest}", capsys.readouterr().err)
    assert tokens.main(["recall", "--subjects", "4", "--output", "recall.nc", "--no-plot", "--csv", "recall.csv"]) == 0
    assert "recall.csv" in capsys.readouterr().out
    assert list(pd.read_csv("recall.csv").columns[:1]) == ["component"]


def test_a_comparison_writes_the_table_of_its_verdict(answers, tmp_path):
    from sgd_check.run.run_files import finish_check

    told = {"json": False, "quiet": True, "overwrite": False, "style": "screen"}
    table = tmp_path / "check.csv"
    assert (
        finish_check(answers["comparison"], tmp_path / "check.nc", None, {**told, "csv": str(table)}, "reached_end")
        == 0
    )
    assert list(pd.read_csv(table)["direction"]) == [1]
