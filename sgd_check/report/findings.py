"""What SGD shows: a comparison with theory, runs alone, or a study.

The functions are entry points of the group `feature_emergence.findings`, declared in `pyproject.toml`: `dynamics` finds
them by the answer of a result without knowing this package.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dynamics.report import Findings, Tone, study_findings
from sgd_check.report.comparison import comparison_values, panel_drawings, times_table
from sgd_check.report.curves import by_curves, curves_table
from sgd_check.report.figures.comparison import plot_comparison
from sgd_check.report.figures.studies import plot_study
from sgd_check.report.mean_field import distance_table, mean_field_values, width_drawing
from sgd_check.report.simulation import simulation_findings
from sgd_check.report.studies import study_told
from sgd_check.report.tokens import TOKENS, token_comparison_findings
from sgd_check.verdicts.mean_field import THEORY

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["comparison_findings", "sgd_study_findings", "simulation_findings"]

_TONES = {"agree": Tone.GOOD, "disagree": Tone.BAD, "undecided": Tone.CAUTION}
_WORDS = {"agree": "Theory and SGD agree.", "disagree": "Theory and SGD disagree.", "undecided": "Undecided."}


def comparison_findings(tree: xr.DataTree) -> Findings:
    """Return what `sgd_check.compare` says, with its numbers and figures."""
    attrs = tree["comparison"].attrs
    if attrs["theory"] == TOKENS:
        return token_comparison_findings(tree)
    verdict, rate = str(attrs["verdict"]), float(attrs["false_alarm_rate"])
    blown, runs = int(attrs["blown_up_count"]), int(attrs["usable_runs"])
    mean_field = attrs["theory"] == THEORY
    curves = [curves_table(tree)] if by_curves(tree) else []
    # The curves of a network have its times among them.
    times = [] if curves and "teacher_coefficient" not in tree["comparison"] else [times_table]
    return Findings(
        tone=_TONES[verdict],
        verdict=f"{_WORDS[verdict]} {attrs['reasons']}",
        cautions=[f"{blown} of {blown + runs} runs blew up and are left out."] if blown else [],
        sentences=[
            f"verdict: {verdict} (false-alarm rate {rate:g}), by {runs} runs; if the theory is right, it is rejected "
            "at that rate.",
            *([str(attrs["loss_statement"])] if "loss_statement" in attrs else []),
        ],
        tables=[distance_table(tree)] if mean_field else [*curves, *(table(tree) for table in times)],
        drawings=[width_drawing(tree)] if mean_field else panel_drawings(tree),
        values={
            "verdict": verdict,
            "theory": attrs["theory"],
            "reasons": attrs["reasons"],
            "false_alarm_rate": rate,
            "usable_runs": runs,
            "blown_up_count": blown,
            **(mean_field_values(tree) if mean_field else comparison_values(tree)),
        },
        overview=partial(plot_comparison, tree),
    )


def sgd_study_findings(dataset: xr.Dataset) -> Findings:
    """Return what a study of `python -m sgd_check.study` shows."""
    return study_findings(dataset, *study_told(dataset), partial(plot_study, dataset))
