"""What SGD shows: a comparison with theory, runs alone, or a study.

The functions are entry points of the group `feature_emergence.findings`, declared in `pyproject.toml`: `dynamics` finds
them by the answer of a result without knowing this package.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from dynamics.report import Findings, study_findings
from sgd_check.report.comparison import comparison_values, has_learned, learned_table, panel_drawings, times_table
from sgd_check.report.curves import by_curves, curves_table
from sgd_check.report.explored import explored_check
from sgd_check.report.figures.comparison import plot_comparison
from sgd_check.report.figures.studies import plot_study
from sgd_check.report.mean_field import distance_table, mean_field_values, width_drawing
from sgd_check.report.recovery import estimate_findings, law_drawing, law_table, law_values
from sgd_check.report.simulation import simulation_findings
from sgd_check.report.studies import study_told
from sgd_check.report.tokens import TOKENS, token_comparison_findings
from sgd_check.report.verdict import said_first
from sgd_check.verdicts.mean_field import THEORY
from sgd_check.verdicts.recovery import THEORY as LAW

if TYPE_CHECKING:
    import xarray as xr

    from dynamics.report import Drawing, Table

__all__ = ["comparison_findings", "estimate_findings", "sgd_study_findings", "simulation_findings"]


def comparison_findings(tree: xr.DataTree) -> Findings:
    """Return what `sgd_check.compare` says, with its numbers and figures."""
    attrs = tree["comparison"].attrs
    if attrs["theory"] == TOKENS:
        return token_comparison_findings(tree)
    word, rate = str(attrs["verdict"]), float(attrs["false_alarm_rate"])
    tone, verdict = said_first(tree, "SGD")
    blown, runs = int(attrs["blown_up_count"]), int(attrs["usable_runs"])
    tables, drawings, numbers = _parts(tree)
    return Findings(
        tone=tone,
        verdict=verdict,
        cautions=[f"{blown} of {blown + runs} runs blew up and are left out."] if blown else [],
        sentences=[
            f"verdict: {word} (false-alarm rate {rate:g}), by {runs} runs; if the theory is right, it is rejected "
            "at that rate.",
            *([str(attrs["loss_statement"])] if "loss_statement" in attrs else []),
        ],
        tables=tables,
        drawings=drawings,
        values={
            "verdict": word,
            "theory": attrs["theory"],
            "reasons": attrs["reasons"],
            "false_alarm_rate": rate,
            "usable_runs": runs,
            "blown_up_count": blown,
            **numbers,
        },
        chart=explored_check(tree),
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
    learned = [learned_table(tree)] if has_learned(tree) else []
    return [*curves, *times, *learned], panel_drawings(tree), comparison_values(tree)


def sgd_study_findings(dataset: xr.Dataset) -> Findings:
    """Return what a study of `python -m sgd_check.study` shows."""
    return study_findings(dataset, *study_told(dataset), partial(plot_study, dataset))
