"""What SGD shows: a comparison with theory, runs alone, or a study.

The functions are entry points of the group `feature_emergence.findings`, declared in `pyproject.toml`: `dynamics` finds
them by the answer of a result without knowing this package.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from dynamics.report import PREDICTED_TIME, Findings, Tone, explored, study_findings
from hermite.text.rounding import with_error
from sgd_check.report.comparison import comparison_values, panel_drawings, rows, times_table
from sgd_check.report.curves import by_curves, curves_table
from sgd_check.report.figures.comparison import plot_comparison
from sgd_check.report.figures.studies import plot_study
from sgd_check.report.mean_field import distance_table, mean_field_values, width_drawing
from sgd_check.report.recovery import estimate_findings, law_drawing, law_table, law_values
from sgd_check.report.simulation import simulation_findings
from sgd_check.report.studies import study_told
from sgd_check.report.tokens import TOKENS, token_comparison_findings
from sgd_check.verdicts.mean_field import THEORY
from sgd_check.verdicts.recovery import THEORY as LAW

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import xarray as xr

    from dynamics.report import Chart, Drawing, Table

__all__ = ["comparison_findings", "estimate_findings", "sgd_study_findings", "simulation_findings"]

_TONES = {"agree": Tone.GOOD, "disagree": Tone.BAD, "undecided": Tone.CAUTION}
#: What a curve of theory says -> the name of its value in a record of a direction.
FACTS = {
    "direction": "direction",
    "a_p =": "teacher_coefficient",
    PREDICTED_TIME: "predicted",
    "SGD, median t =": "sgd_median",
    "ratio": "ratio",
}
_WORDS = {"agree": "Theory and SGD agree.", "disagree": "Theory and SGD disagree.", "undecided": "Undecided."}


def comparison_findings(tree: xr.DataTree) -> Findings:
    """Return what `sgd_check.compare` says, with its numbers and figures."""
    attrs = tree["comparison"].attrs
    if attrs["theory"] == TOKENS:
        return token_comparison_findings(tree)
    verdict, rate = str(attrs["verdict"]), float(attrs["false_alarm_rate"])
    blown, runs = int(attrs["blown_up_count"]), int(attrs["usable_runs"])
    tables, drawings, numbers = _parts(tree)
    return Findings(
        tone=_TONES[verdict],
        verdict=f"{_WORDS[verdict]} {attrs['reasons']}",
        cautions=[f"{blown} of {blown + runs} runs blew up and are left out."] if blown else [],
        sentences=[
            f"verdict: {verdict} (false-alarm rate {rate:g}), by {runs} runs; if the theory is right, it is rejected "
            "at that rate.",
            *([str(attrs["loss_statement"])] if "loss_statement" in attrs else []),
        ],
        tables=tables,
        drawings=drawings,
        values={
            "verdict": verdict,
            "theory": attrs["theory"],
            "reasons": attrs["reasons"],
            "false_alarm_rate": rate,
            "usable_runs": runs,
            "blown_up_count": blown,
            **numbers,
        },
        chart=_explored(tree),
        overview=partial(plot_comparison, tree),
    )


def _parts(tree: xr.DataTree) -> tuple[list[Table], list[Drawing], dict[str, Any]]:
    """Return tables, figures and numbers by what was compared."""
    theory = tree["comparison"].attrs["theory"]
    if theory == THEORY:
        return [distance_table(tree)], [width_drawing(tree)], mean_field_values(tree)
    if theory == LAW:
        return [law_table(tree)], [law_drawing(tree)], law_values(tree)
    curves = [curves_table(tree)] if by_curves(tree) else []
    # The curves of a network have its times among them.
    times = [] if curves and "teacher_coefficient" not in tree["comparison"] else [times_table(tree)]
    return [*curves, *times], panel_drawings(tree), comparison_values(tree)


def _explored(tree: xr.DataTree) -> Callable[[], Chart] | None:
    """Return what gives the overlaps that theory expects, each with the times of theory and of SGD; None without."""
    prediction = tree["prediction"].to_dataset()
    if "emergence_ratio" not in tree["comparison"] or "seed" in prediction.dims:
        return None
    records = [{**row, "ratio": _ratio(row)} for row in rows(tree)]
    return explored(prediction, records, FACTS)


def _ratio(row: Mapping[str, Any]) -> str:
    """Return the ratio of the times of SGD to those of theory, with its error."""
    return with_error(*(math.nan if row[name] is None else row[name] for name in ("ratio", "standard_error")))


def sgd_study_findings(dataset: xr.Dataset) -> Findings:
    """Return what a study of `python -m sgd_check.study` shows."""
    return study_findings(dataset, *study_told(dataset), partial(plot_study, dataset))
