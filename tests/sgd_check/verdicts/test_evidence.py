"""Evidence as rows: the word is a function of them alone, and they are stored with the comparison."""

import itertools

import numpy as np
import pytest
import xarray as xr
from old_files import make

import dynamics
import sgd_check
from dynamics.runs.variables import VARIABLES
from sgd_check.report.findings import MOST_EVIDENCE, comparison_findings
from sgd_check.verdicts.evidence import (
    Decision,
    Row,
    RowKind,
    evidence_variables,
    global_p_value,
    judged,
    named,
    rows_of,
    word_of,
)
from sgd_check.verdicts.verdict import count_sentence, difference, leave

KINDS = [(decision, required) for decision in ("agree", "disagree", "undecided") for required in (False, True)]


def row(decision="agree", required=False, **more):
    return Row(quantity="loss", decision=Decision(decision), required=required, **more)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_combination_of_rows_has_its_word(count):
    """One row that disagrees refutes; else every required row has to agree, and there has to be one."""
    for kinds in itertools.product(KINDS, repeat=count):
        if "disagree" in [decision for decision, _ in kinds]:
            word = "disagree"
        elif ("agree", True) in kinds and ("undecided", True) not in kinds:
            word = "agree"
        else:
            word = "undecided"
        assert word_of([row(*kind) for kind in kinds]) == word, kinds


def test_nothing_tested_is_undecided():
    assert word_of([]) == "undecided"
    assert global_p_value([row(), row(p_value=np.nan)]) == 1.0


@pytest.mark.parametrize(
    ("p_value", "seen", "required", "excuse", "decision", "needed", "cause"),
    [
        (0.5, True, True, "", "agree", True, ""),
        (0.5, True, False, "noise", "agree", False, ""),
        (0.5, False, True, "noise", "undecided", True, "unseen"),
        (0.5, False, False, "", "undecided", False, "unseen"),
        (0.001, True, False, "", "disagree", True, ""),
        (0.001, False, True, "", "disagree", True, ""),
        (0.001, True, False, "noise", "undecided", True, "noise"),
        (0.001, False, True, "noise", "undecided", True, "noise"),
        (0.01, True, True, "", "agree", True, ""),
        (np.nan, True, False, "", "agree", False, ""),
        (np.nan, False, True, "", "undecided", True, "unseen"),
    ],
)
def test_a_row_is_decided_by_its_numbers(p_value, seen, required, excuse, decision, needed, cause):
    """At a rate of 1 %: a difference with an excuse is undecided, and has to be decided."""
    made = judged(0.01, quantity="loss", p_value=p_value, seen=seen, required=required, cause="unseen", excuse=excuse)
    assert (made.decision, made.required, made.cause) == (decision, needed, cause)


def test_sentences_are_made_from_rows():
    rows = [
        Row(quantity="loss", kind=RowKind.CURVE, time=1.25, z=-7.24, p_value=1e-5),
        Row(quantity="emergence time of axis", label="2", kind=RowKind.TIME, z=3.0, p_value=1e-6),
        Row(quantity="bias at the start", kind=RowKind.START, z=np.inf, p_value=1e-7),
        Row(quantity="loss", kind=RowKind.RANKS, time=2.0, z=4.0, p_value=1e-8),
        Row(quantity="direction", label="3", kind="emergence", z=-5.0, p_value=1e-9),
        Row(quantity="direction", label="3", kind="learning", z=5.0, p_value=1e-10),
        Row(quantity="direction", label="4", kind="emergence", time=np.inf, value=3, runs=8, p_value=0.0, cause="Noise."),
    ]  # fmt: skip
    said = [difference(rows[: count + 1], 1e-5, 0.01).split(" (global")[0] for count in range(len(rows))]
    assert said == [
        "The loss is smaller than predicted, most at time 1.25, z = -7.2",
        "The emergence time of axis 2 is later than predicted, z = 3.0",
        "The bias at the start is larger than predicted, z = inf",
        "The loss is larger than predicted, most at time 2, z = 4.0",
        "Direction 3 emerges early, z = -5.0",
        "Direction 3 is learned late, z = 5.0",
        "Direction 4, predicted never: 3 of 8 runs emerged",
    ]
    assert count_sentence(rows[-1], ".") == "Direction 4, predicted never: 3 of 8 runs emerged. Noise."
    assert named([rows[4], rows[0], rows[6]]) == "direction 3, 4 and loss"
    assert leave(rows[:1])
    assert not leave([rows[3], rows[6], Row(quantity="loss", z=0.0)])


def test_rows_are_stored_as_they_are(tmp_path):
    """Empty and foreign texts, NaN and infinity come back from a file, each with a unit and a name."""
    rows = [
        Row(quantity="squared norm", label="1", kind=RowKind.CURVE, time=0.5, value=-0.1, low=-0.02, high=0.02, z=-3.0),
        judged(0.01, quantity="Komponente ξ₁", p_value=0.002, seen=True, excuse="That may be “noise”: no.", power=0.9),
        Row(quantity="loss", z=-np.inf, p_value=0.0, visible_error=0.1, runs=16.0, required=True, decision=Decision.DISAGREE),
    ]  # fmt: skip
    values = evidence_variables(rows)
    dataset = xr.Dataset({name: ("row", array, VARIABLES[name].labels) for name, array in values.items()})
    dynamics.save(dataset.assign_attrs(answer="comparison", schema_version=1), tmp_path / "rows.nc")
    loaded = dynamics.load(tmp_path / "rows.nc")
    for name, column in evidence_variables(rows_of(loaded)).items():
        np.testing.assert_array_equal(column, values[name], err_msg=name)
    assert word_of(rows_of(loaded)) == "disagree"
    for name in values:
        assert loaded[name].attrs["units"] == "1"
        assert loaded[name].attrs["long_name"]


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """A comparison that an earlier version wrote, without rows."""
    paths = {path.stem: path for path in make.unpack_files(tmp_path_factory.mktemp("old"), "finished")}
    return dynamics.load(paths["comparison"])


def test_a_file_without_rows_shows_the_rest(old, tmp_path):
    assert rows_of(old["comparison"].to_dataset()) == []
    found = comparison_findings(old)
    assert "evidence" not in found.values
    assert "Evidence" not in [table.caption for table in found.tables]
    assert found.verdict.endswith(old["comparison"].attrs["reasons"])
    assert dynamics.write_report(old, tmp_path / "old.html").stat().st_size > 5000
    assert dynamics.summary(old)


def test_the_stored_word_follows_from_the_stored_rows(old, tmp_path):
    tree = sgd_check.compare(old["prediction"].to_dataset(), old["simulation"].to_dataset())
    dynamics.save(tree, tmp_path / "anew.nc")
    comparison = dynamics.load(tmp_path / "anew.nc")["comparison"].to_dataset()
    rows = rows_of(comparison)
    assert word_of(rows) == comparison.attrs["verdict"]
    assert global_p_value(rows) == float(comparison["p_value"])
    assert type(tree["comparison"].attrs["verdict"]) is str, "examples show it"
    table = comparison_findings(tree).tables[-1]
    assert table.caption == "Evidence"
    assert [line["tested"] for line in table.rows].count("direction 1") == 1
    assert [line["says"] for line in table.rows if line["required"] == "yes"]


def test_a_table_shows_what_decides_and_counts_the_rest(old):
    tree = sgd_check.compare(old["prediction"].to_dataset(), old["simulation"].to_dataset())
    rows = [row(p_value=0.5) for _ in range(MOST_EVIDENCE)]
    rows += [row("undecided"), row("undecided", required=True), row("disagree", required=True, p_value=0.001)]
    comparison = tree["comparison"].to_dataset()
    kept = comparison.drop_vars(evidence_variables([]))
    many = kept.assign({name: ("row", values) for name, values in evidence_variables(rows).items()})
    table = comparison_findings(
        xr.DataTree.from_dict(
            {"/comparison": many} | {f"/{part}": tree[part].to_dataset() for part in ("prediction", "simulation")}
        )
    ).tables[-1]
    assert [line["says"] for line in table.rows[:3]] == ["disagree", "undecided", "undecided"]
    assert len(table.rows) == MOST_EVIDENCE
    assert table.note.endswith("Rows that are not shown: 3 agree.")
