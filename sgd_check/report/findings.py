"""Findings on SGD: a comparison with theory, runs alone, estimates of a direction, runs on tokens, or a study.

The functions are entry points of the group `feature_emergence.findings`, declared in `pyproject.toml`: `dynamics` finds
them by the answer of a result without knowing this package.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics import report
from dynamics.report import PREDICTED_AT, Drawing, Findings, Table, drawing_of, history_chart, jsonable, records
from dynamics.runs import StopReason
from hermite.text.messages import with_error
from sgd_check.report import figures
from sgd_check.report.figures import by_curves, late_quartiles
from sgd_check.report.studies import STUDIES, plot_study
from sgd_check.verdicts.evidence import Decision, rows_of
from sgd_check.verdicts.inputs import THEORY as INPUTS
from sgd_check.verdicts.kernel import THEORY as KERNELS
from sgd_check.verdicts.mean_field import THEORY as MEAN_FIELD
from sgd_check.verdicts.recovery import THEORY as LAW
from sgd_check.verdicts.reused_data import THEORY as REUSED
from sgd_check.verdicts.verdict import ALIGNMENT, event_of, of_sound_runs, tell_alike, with_emergence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import xarray as xr

    from dynamics.report import Chart
    from hermite.arrays import Array
    from sgd_check.verdicts.evidence import Row

    Rows = list[dict[str, Any]]
    #: Tables, figures and numbers.
    Parts = tuple[list[Table], list[Drawing], dict[str, Any]]

#: Theory of runs on tokens.
TOKENS = "tokens"
#: Compared times that a table shows.
MOST_TIMES = 10
#: Rows of evidence that a table shows.
MOST_EVIDENCE = 12
_TONES = dict(zip(Decision, (report.Tone.GOOD, report.Tone.BAD, report.Tone.CAUTION), strict=True))
_VERDICTS = dict(zip(Decision, ("Theory and {} agree.", "Theory and {} disagree.", "Undecided."), strict=True))
#: Answer of a file that a comparison was given -> title of its times.
_GIVEN = {"overlaps": "flow", "decoupled": "decoupled", "prediction": "pairs"}
_SEEN = "seen: the least error of a predicted time that this check sees with probability 0.8."
_RATIO = (
    "ratio: exp of the mean of ln(time of SGD / theory) over runs, corrected for the known noise of their steps; "
    "delay: expected of the mean time against the flow; z: distance of the mean of ln(ratio) from its band"
)
#: Theory -> meaning of the columns of the table of times.
_COLUMNS = {
    "flow": f"{_RATIO}; {_SEEN}",
    "finite step": f"{_RATIO} in standard errors; {_SEEN}",
    "sample": "ratio: SGD over the predicted runs; z is the log-rank statistic, positive if SGD is late.",
}
_SHORT = {"SGD, median": "SGD median", "seen, %": "seen %", "runs without": "censored"}
_MEASURED = "SGD, median t ="
_ESTIMATES = "Squared overlap of every estimate with the direction"


# --- comparisons ------------------------------------------------------------------------------------------------------


def comparison_findings(tree: xr.DataTree) -> Findings:
    """Return the findings on a comparison, a tree that `sgd_check.compare` or `sgd_check.tokens.compare` returned.

    They begin with the verdict and its reasons. Tables, figures and values depend on the theory that was compared; a
    table of the rows of evidence comes last.
    """
    attrs = tree["comparison"].attrs
    theory, of_tokens = attrs["theory"], attrs["theory"] == TOKENS
    word, reasons, rate = Decision(attrs["verdict"]), str(attrs["reasons"]), float(attrs["false_alarm_rate"])
    blown, runs = int(attrs["blown_up_count"]), int(attrs["usable_runs"])
    makers = {MEAN_FIELD: _mean_field_parts, LAW: _law_parts, TOKENS: _token_parts, REUSED: _reused_parts}
    makers |= {INPUTS: _input_parts, KERNELS: _kernel_parts}
    make_parts = makers.get(theory, _time_parts)
    tables, drawings, numbers = make_parts(tree)
    verdict = f"{_VERDICTS[word].format('runs' if of_tokens or theory == KERNELS else 'SGD')} {reasons}"
    for node in tree.subtree:  # the first part that was ended from outside before its end
        reason = node.attrs.get("stop_reason")
        if any(reason == cause and cause.resumable for cause in StopReason):
            part = "the prediction" if node.path.startswith("/prediction") else "the runs"
            early = f"{part} stopped early ({str(reason).replace('_', ' ')}). {verdict}"
            verdict = f"Unfinished: {verdict[0].lower() + verdict[1:] if 'stopped early' in reasons else early}"
            break
    end = "." if of_tokens else "; a check of a right theory ends in disagreement with that probability."
    values = {"verdict": str(word), "theory": theory, "reasons": attrs["reasons"], "false_alarm_rate": rate}
    values |= {"usable_runs": runs, **({} if of_tokens else {"blown_up_count": blown}), **numbers}
    if evidence := rows_of(tree["comparison"].to_dataset()):
        tables.append(_evidence_table(evidence))
        values["evidence"] = [jsonable(asdict(row)) for row in evidence]
    said = [f"verdict: {word} (false-alarm rate {rate:g}), by {runs} runs{end}"]
    said += str(attrs.get("before_runs", "")).splitlines()
    return Findings(
        tone=_TONES[word],
        verdict=verdict,
        cautions=[f"{blown} of {blown + runs} runs blew up and are left out."] if blown else [],
        sentences=[*said, str(attrs["loss_statement"])] if "loss_statement" in attrs else said,
        tables=tables,
        drawings=drawings,
        values=values,
        chart=_chart(tree),
        overview=drawings[0].draw if of_tokens else partial(figures.plot_comparison, tree),
    )


def _evidence_table(evidence: Sequence[Row]) -> Table:
    """Return the table of at most `MOST_EVIDENCE` rows of evidence, with the number of other rows in its note.

    Rows that disagree come first, then required ones, then those that do not agree.
    """
    first = sorted(evidence, key=lambda row: (not row.disagrees, not row.required, row.agrees))
    rest = Counter(row.decision for row in first[MOST_EVIDENCE:])
    hidden = ", ".join(f"{count} {word}" for word, count in sorted(rest.items()))
    rows = [
        {
            "tested": row.name, "kind": row.kind, "at time": jsonable(row.time), "value": jsonable(row.value),
            "from": jsonable(row.low), "to": jsonable(row.high), "z": jsonable(row.z), "p": jsonable(row.p_value),
            "power": jsonable(row.power), "visible error": jsonable(row.visible_error),
            "required": "yes" if row.required else "no", "says": row.decision,
        }
        for row in first[:MOST_EVIDENCE]
    ]  # fmt: skip
    note = (
        "value: SGD less theory, of curves over their range, of times and of scatter as ln of a ratio, or a number of "
        "runs; theory allows from … to; z: distance from that as a normal score; p: with its share of the false-alarm "
        "rate; power: to see an error of 30 %. One row that disagrees refutes theory; all required rows have to agree."
    )
    return Table(
        caption="Evidence",
        rows=rows,
        note=f"{note} Rows that are not shown: {hidden}." if hidden else note,
        short={title: title for title in ("tested", "z", "p", "power", "required", "says")},
        digits=3,
    )


def median_over_runs(times: Array) -> Array:
    """Return the median over runs of times (runs, …), NaN without runs; runs without count as late."""
    late = np.where(np.isnan(times), np.inf, times)
    return np.asarray(np.median(late, axis=0)) if len(times) else np.full(times.shape[1:], np.nan)


def _chart(tree: xr.DataTree) -> Callable[[], Chart] | None:
    """Return a function that makes the interactive chart of a comparison, or None if there is no curve to show.

    The chart shows the predicted curves of directions or components; their labels tell predicted and measured times.
    """
    prediction, comparison = tree["prediction"].to_dataset(), tree["comparison"].to_dataset()
    if "progress" in prediction:
        facts: dict[str, object] = {"component": prediction["component"], PREDICTED_AT: prediction["learned_time"]}
        facts["runs, median t ="] = median_over_runs(tree["simulation"].to_dataset()["learned_time"].values)
        return history_chart(prediction, records(facts), report.PROGRESS, PREDICTED_AT)
    if "component" in prediction:
        runs = of_sound_runs(tree["simulation"].to_dataset(), "component_learned_time")
        names = {"component": "component_name", "f* =": "teacher_component", PREDICTED_AT: "component_learned_time"}
        facts = {word: prediction[name] for word, name in names.items()} | {_MEASURED: median_over_runs(runs)}
        return history_chart(prediction, records(facts), report.COMPONENTS, PREDICTED_AT)
    if comparison.attrs["theory"] == MEAN_FIELD:
        wide = list(tree["simulation"].children.values())[-1].to_dataset()
        names = {"direction": "direction", "a_p =": "teacher_coefficient", PREDICTED_AT: "learned_time"}
        facts = {word: prediction[name] for word, name in names.items()}
        if tell_alike("learned_time", (prediction, wide)):
            times = median_over_runs(of_sound_runs(wide, "learned_time"))
            facts[f"SGD of width {wide.sizes['neuron']}, median t ="] = times
        return history_chart(prediction, records(facts), report.MASSES, PREDICTED_AT)
    if "emergence_ratio" not in comparison or "seed" in prediction.dims:
        return None
    rows, columns, history = time_rows(tree), {"axis": "direction"}, (report.AXES, PREDICTED_AT)
    if "teacher_coefficient" in comparison:  # a network has axes instead of directions
        columns = {"direction": "direction", "a_p =": "teacher_coefficient"}
        history = (report.OVERLAPS, report.PREDICTED_TIME)
    for row in rows:
        row["ratio"] = with_error(*(math.nan if row[key] is None else row[key] for key in ("ratio", "standard_error")))
    columns |= {history[1]: "predicted", _MEASURED: "sgd_median", "ratio": "ratio"}
    return history_chart(prediction, report.renamed(rows, columns), *history)


# --- times and curves -------------------------------------------------------------------------------------------------


def _time_parts(tree: xr.DataTree) -> Parts:
    """Return tables, drawings and values of a comparison of the times of directions with a theory of them.

    Comparisons that curves decide have a table of curves first. Values are for JSON.
    """
    comparison, simulation = tree["comparison"].to_dataset(), tree["simulation"].to_dataset()
    event, curves, tables = event_of(simulation), by_curves(tree), []
    attrs = simulation.attrs
    values = {"p_value": float(comparison["p_value"].values), "loss": comparison.attrs["loss_statement"]}
    values |= {"learning_rate": float(attrs["effective_learning_rate"]), "steps": int(attrs["steps"])}
    values |= {"stop_reason": attrs["stop_reason"], "directions": time_rows(tree)}
    if curves:
        values["curves"], table = _curves(tree)
        tables.append(table)
    if not curves or "teacher_coefficient" in comparison:  # the curves of a network have its times among them
        tables.append(_times_table(tree, values["directions"]))
    if "learned_p_value" in comparison and np.isfinite(comparison["learned_p_value"].values).any():
        values["learned"], table = _learned(tree)
        tables.append(table)
    overlaps = "Alignments with the span" if event is ALIGNMENT else "Squared overlaps"
    more = f"{comparison.attrs['usable_runs']} runs; verdict: {comparison.attrs['verdict']}."
    captions = {
        figures.plot_times: f"{event.noun.capitalize()} times of SGD against the predicted ones.",
        figures.plot_overlaps: f"{overlaps} over time: thin lines runs, thick ones theory.",
    }
    learned = "What is learned over time, as a part of the teacher's."
    survival = f"Share of the runs without {event.noun} over time, with theory."
    captions |= {figures.plot_learning: learned} if curves else {figures.plot_survival: survival}
    drawings = [drawing_of(plot, tree, caption=caption, more=more) for plot, caption in captions.items()]
    loss = "Mean loss of the runs with its band, the predicted loss, the residual below."
    two: dict[str, object] = {"size": figures.LOSS_SIZE, "shape": (2,)}
    return tables, [*drawings, drawing_of(figures.plot_loss_band, tree, caption=loss, more=more, **two)], values


def time_rows(tree: xr.DataTree) -> Rows:
    """Return the predicted and measured emergence times of a comparison as one dict per direction.

    Each also has the ratio of the times with its standard error, the score z, and the number of runs without emergence
    (`censored`). Numbers that do not exist are None.
    """
    comparison, simulation = tree["comparison"].to_dataset(), tree["simulation"].to_dataset()
    predicted, ratio = comparison["emergence_time"].values, comparison["emergence_ratio"].values
    mean, unknown = np.exp(comparison["mean_log_ratio"].values), np.full(predicted.size, np.nan)
    columns = {
        "direction": np.arange(1, predicted.size + 1),
        "teacher_coefficient": comparison.get("teacher_coefficient", unknown),
        "given": tree["given/emergence_time"] if "given" in tree.children else predicted,
        "predicted": predicted,
        "sgd_median": median_over_runs(ratio[simulation["blown_up"].values == 0]) * predicted,
        "ratio": mean,
        "standard_error": mean * comparison["standard_error"].values,
        "expected_delay": comparison["expected_delay"],
        "visible_error": comparison.get("visible_error", unknown),
        "z": comparison["z_score"],
        "censored": comparison["censored_count"],
    }
    return [jsonable(row) for row in records(columns)]


def _times_table(tree: xr.DataTree, directions: Rows) -> Table:
    """Return the table of predicted and measured times; `directions` are the rows that `time_rows` returned.

    If the tree holds a prediction as it was given, beside the one that was compared, the table has both.
    """
    both = "given" in tree.children
    columns = {"p": "direction", "a_p": "teacher_coefficient", **({"in the file": "given"} if both else {})}
    columns |= {"predicted": "predicted", "SGD, median": "sgd_median", "ratio": "ratio", "± s.e.": "standard_error"}
    columns |= {"delay, %": "expected_delay", "seen, %": "visible_error", "z": "z", "runs without": "censored"}
    source = _GIVEN.get(str(tree["given"].attrs.get("answer")), "given") if both else ""
    note = "ratio: SGD over theory, of directions that emerge in all runs. The curves decide; a time can only refute."
    return _of_directions(
        f"{event_of(tree['simulation'].to_dataset()).noun.capitalize()} times of SGD against prediction",
        directions,
        columns,
        note if by_curves(tree) else _COLUMNS[tree["comparison"].attrs["theory"]],
        {"in the file": source, "predicted": "finite step"} if both else {},
        errors={"ratio": "± s.e."},
    )


def _of_directions(
    caption: str, rows: Rows, columns: Mapping[str, str], note: str, renames: dict[str, str], **more: Any
) -> Table:
    """Return a report's table with a row per direction.

    `rows` are dicts, and `columns` maps the title of a column to its key in them. Values of columns whose title ends in
    % are shares in the rows, and are shown times 100, with one decimal. `renames` gives short titles beside those of
    `_SHORT`, by title; `note` is the text below the table, and `more` are further fields of `Table`.
    """
    renamed = report.renamed(rows, columns)
    for row in renamed:
        row |= {key: round(100.0 * value, 1) for key, value in row.items() if key.endswith("%") and value is not None}
    short = {title: _SHORT.get(title, title) for title in columns} | renames
    return Table(caption=caption, rows=renamed, note=note, each="directions, spread over p", short=short, **more)


def _learned(tree: xr.DataTree) -> tuple[Rows, Table]:
    """Return predicted and measured learned times as one dict per direction, and as a table.

    Measured times are medians over the runs that did not blow up. Unknown numbers are None.
    """
    comparison, simulation = tree["comparison"].to_dataset(), tree["simulation"].to_dataset()
    measured = simulation["learned_time"].values[simulation["blown_up"].values == 0]
    numbers = {
        "direction": comparison["direction"],
        "predicted": tree["prediction/learned_time"],
        "sgd_median": median_over_runs(measured),
        **{name: comparison[f"learned_{name}"] for name in ("z_score", "p_value", "visible_error")},
        "censored": np.count_nonzero(np.isnan(measured), axis=0),
    }
    rows = [jsonable(row) for row in records(numbers)]
    columns = {"p": "direction", "predicted": "predicted", "SGD, median": "sgd_median"}
    columns |= {"seen, %": "visible_error", "z": "z_score", "runs without": "censored"}
    note = (
        "z: distance of the mean of ln(ratio) from its band in standard errors, without a number where no learned time "
        "is predicted within the runs."
    )
    return rows, _of_directions("Learned times of SGD against prediction", rows, columns, note, {})


def _curves(tree: xr.DataTree) -> tuple[Rows, Table]:
    """Return one dict per tested curve or time of a comparison, and their table.

    Each holds the numbers at the compared time at which SGD is farthest from theory.
    """
    comparison, rows = tree["comparison"].to_dataset(), []
    for name in comparison["quantity"].values.tolist():
        curve = comparison.sel(quantity=name)
        mean, predicted = curve["look_mean"].values, curve["look_prediction"].values
        at = int(np.argmax(np.nan_to_num(np.abs(mean - predicted))))  # no mean of a time that runs lack
        row = {"quantity": name, "looks": int(np.isfinite(mean).sum()), "time": curve["look_time"].values[at]}
        row |= {"predicted": predicted[at], "measured": mean[at], "z": curve["look_z"].values[at]}
        row |= {key: float(curve[f"quantity_{key}"].values) for key in ("error", "allowance", "p_value", "power")}
        if "look_error" in curve:  # files of earlier versions have only the largest error
            row["error"] = curve["look_error"].values[at]
        rows.append(row)
    columns = {"what": "quantity", "at time": "time", "predicted": "predicted", "SGD": "measured", "± s.e.": "error"}
    columns |= {"allowed": "allowance", "z": "z", "power": "power", "looks": "looks"}
    step = "SGD is extrapolated to learning rate 0 from runs at two of them. " if "finer" in tree.children else ""
    values = [jsonable(row) for row in rows]
    table = Table(
        caption="Curves of SGD against prediction",
        rows=report.renamed(values, columns),
        note=f"{step}Shown is, of up to eight times of each curve, the one at which SGD is farthest from theory; z is "
        "the distance from what is allowed in standard errors, power the probability that an error of 30 % in time is "
        "seen. Errors of times are relative.",
        errors={"SGD": "± s.e."},
        each="curves",
        short={title: title for title in columns if title != "looks"},
        digits=3,
    )
    return values, table


def _reused_parts(tree: xr.DataTree) -> Parts:
    """Return tables, figures and values of a comparison of runs on samples that are used again."""
    rows, table = _curves(tree)
    attrs = tree["simulation"].attrs
    values = {"p_value": float(tree["comparison/p_value"]), "curves": rows}
    values |= {name: attrs[name] for name in ("training_samples", "batch_size", "steps", "learning_rate")}
    caption = "Losses, overlaps and squared norms: lines theory, points means over runs with two standard errors."
    return [table], [Drawing(partial(figures.plot_comparison, tree), caption, caption)], values


def _input_parts(tree: xr.DataTree) -> Parts:
    """Return tables, figures and values of runs on rows against runs on Gaussian inputs."""
    comparison = tree["comparison"].to_dataset()
    gauss = comparison["predicted_emergence_time"].values
    columns: dict[str, Array] = {"direction": comparison["direction"].values, "Gaussian t": gauss}
    pairs = (("corrected", "cumulants"), ("path", "meter"))
    with np.errstate(invalid="ignore"):
        for name, title in pairs:
            columns[title] = comparison[f"{name}_emergence_time"].values / gauss
            columns[f"± s.e. of {title}"] = comparison[f"{name}_error"].values / gauss
    columns |= {"SGD": comparison["run_ratio"].values, "± s.e. of SGD": comparison["run_ratio_error"].values}
    columns["rho"] = comparison["resampling_ratio"].values
    titles = ("cumulants", "meter", "SGD")
    table = Table(
        caption="Times of emergence over those for Gaussian inputs",
        rows=records(columns),
        note="cumulants: by fourth cumulants of rows; meter: by their mean along the path; SGD: mean time of runs on "
        "rows over that of Gaussian runs at the same learning rate; rho: up to 0.02 resampled rows suffice.",
        errors={title: f"± s.e. of {title}" for title in titles},
        short={title: "± s.e." if title.startswith("±") else title for title in columns},
        digits=3,
    )
    times = ("predicted_emergence_time", "corrected_emergence_time", "corrected_error", "path_emergence_time")
    ratios = ("path_error", "run_ratio", "run_ratio_error", "resampling_ratio", "effective_information_exponent")
    values = {"rows": comparison.attrs["rows"], "row_count": int(comparison.attrs["row_count"])}
    values |= {name: jsonable(comparison[name].values.tolist()) for name in (*times, *ratios)}
    values["before_runs"] = str(comparison.attrs["before_runs"]).splitlines()
    caption = "Times on these rows over those on Gaussian inputs: theory, measures of the rows, and runs."
    return [table], [Drawing(partial(figures.plot_comparison, tree), caption, caption)], values


# --- mean fields ------------------------------------------------------------------------------------------------------


def _mean_field_parts(tree: xr.DataTree) -> Parts:
    """Return tables, drawings and values of a comparison of runs of several widths with a mean field.

    The table has distances from the mean field and exponents of the width at spread times; the values, for JSON, have
    all times.
    """
    comparison = tree["comparison"].to_dataset()
    simulations = [node.to_dataset() for node in tree["simulation"].children.values()]
    widths, exponent = comparison["width"].values.tolist(), float(comparison["mean_gap_exponent"])
    means = {name: comparison[name].mean("seed").transpose("time", "width").values for name in ("loss", "function_gap")}
    by_width = {name: [dict(zip(widths, row, strict=True)) for row in mean.tolist()] for name, mean in means.items()}
    columns = {name: comparison[name] for name in ("time", "mean_field_loss", *report.EXPONENTS)}
    times = [jsonable(row) for row in records({**columns, **by_width})]
    first, last = simulations[0].attrs, simulations[-1].attrs
    names = {"exponent_error": "mean_gap_exponent_error", "z": "exponent_z", "p_value": "p_value"}
    values = {"exponent": exponent, **{key: float(comparison[name]) for key, name in names.items()}, "widths": widths}
    values |= {"starts": int(comparison.sizes["seed"]), "learning_rate": float(first["effective_learning_rate"])}
    values |= {
        "batch_sizes": [int(dataset.attrs["batch_size"]) for dataset in simulations],
        "steps": int(first["steps"]),
    }
    values |= {"stop_reason": last["stop_reason"], "times": times}
    later = [row for row in times if row["time"] > 0.0]
    short = {"x": "x", "± s.e. of x": "± s.e.", "y": "y", "± s.e. of y": "± s.e."}
    rows = [
        {
            "t": row["time"],
            "loss": row["mean_field_loss"],
            **{f"D, m = {m}": gap for m, gap in row["function_gap"].items()},
            **{title: row[name] for title, name in zip(short, report.EXPONENTS, strict=True)},
        }
        for row in (later[at] for at in report.spread_times(len(later), min(len(later), MOST_TIMES)))
    ]
    table = Table(
        caption="Distances from the mean field over time",
        rows=rows,
        note="D_m: m E(f_m - f)^2 without the noise of SGD, mean over starts; x: exponent of D_m/m in m, theory -1; "
        "y: that of the neurons' squared distance, beside the verdict.",
        errors={"x": "± s.e. of x", "y": "± s.e. of y"},
        short={"t": "t", "loss": "loss", **{f"D, m = {m}": f"D_{m}" for m in widths}, **short},
        digits=3,
    )
    caption = "Losses of all widths, scaled distances from the mean field, and their exponents in the width."
    more = f"The tested exponent is {exponent:.3g}; theory says −1."
    return [table], [Drawing(partial(figures.plot_comparison, tree), caption, f"{caption} {more}")], values


# --- estimates of one direction ---------------------------------------------------------------------------------------


def _law_parts(tree: xr.DataTree) -> Parts:
    """Return tables, drawings and values of a comparison of estimates of a direction with the law of their overlap.

    The law is that of spectral recovery; the one row of the table has the mean squared overlap beside it.
    """
    comparison = tree["comparison"].to_dataset()
    names = ("mean_overlap_squared", "predicted_overlap_squared", "allowed_deviation", "p_value")
    by_direction = ("standard_error", "z_score", "visible_error")
    values = {
        "samples": int(tree["simulation"].attrs["samples"]),
        **{name: float(comparison[name]) for name in names},
        **{name: float(comparison[name].values[0]) for name in by_direction},
    }
    columns = {"samples": "samples", "mean": "mean_overlap_squared", "± s.e.": "standard_error"}
    columns |= {"law": "predicted_overlap_squared", "± allowed": "allowed_deviation"}
    rows = report.renamed([values], columns | {"z": "z_score", "seen": "visible_error"})
    note = "z: distance of the mean from what a finite d is allowed, in standard errors; seen: the least error "
    note += "of the law that this check sees with probability 0.8."
    table = Table(caption="Squared overlap against its law", rows=rows, note=note, errors={"mean": "± s.e."})
    caption = f"{_ESTIMATES}, the law, and what a finite dimension is allowed."
    return [table], [Drawing(partial(figures.plot_comparison, tree), caption, caption)], values


def _kernel_parts(tree: xr.DataTree) -> Parts:
    """Return drawings of a comparison of drawn kernels with their theory; the evidence has its numbers."""
    caption = "Errors of all draws, their mean, and the theory of the kernel."
    prediction = tree["prediction"].to_dataset()
    values = {name: prediction.attrs.get(name) for name in ("kernel", "kernel_link", "protocol", "inputs")}
    return [], [Drawing(partial(figures.plot_comparison, tree), caption, caption)], values


def estimate_findings(dataset: xr.Dataset) -> Findings:
    """Return the findings on a dataset of `sgd_check.estimate_direction` that is compared with nothing.

    Mean and quartiles of the squared overlap are those of estimates whose overlap is finite.
    """
    overlaps = dataset["overlap_squared"].values[np.isfinite(dataset["overlap_squared"].values)]
    row: dict[str, float] = {"samples": int(dataset.attrs["samples"]), "estimates": int(overlaps.size)}
    if overlaps.size:
        quantiles = {f"quantile {share:g}": float(np.quantile(overlaps, share)) for share in (0.25, 0.5, 0.75)}
        row |= {"mean": float(overlaps.mean()), **quantiles}
    draw = partial(report.figure_of, figures.plot_estimates, dataset, None)
    return report.run_findings(
        dataset,
        sentences=[report.recovery_sentence(dataset)],
        tables=[Table(caption="Squared overlap with the direction", rows=[row])],
        drawings=[Drawing(draw, f"{_ESTIMATES}.", f"{_ESTIMATES}.")],
        values={"answer": "direction-estimate", **row},
        overview=draw,
    )


# --- runs alone -------------------------------------------------------------------------------------------------------


def simulation_findings(dataset: xr.Dataset) -> Findings:
    """Return the findings on a dataset of runs of `sgd_check.simulate`, compared with nothing.

    They have cautions on runs that blew up, a learning rate above the limit and events that were not seen, tables with
    quartiles of the times of directions (and of components, for networks), and figures.
    """
    if dataset.attrs.get("theory") == TOKENS:
        return token_simulation_findings(dataset)
    dataset = with_emergence(dataset)
    attrs, end, event = dataset.attrs, float(dataset.attrs["end_time"]), event_of(dataset)
    cautions, blown = [], int((dataset["blown_up"].values != 0).sum())
    if blown:
        cautions.append(f"{blown} of {dataset.sizes['seed']} runs blew up.")
    if attrs.get("above_limit"):
        rate, limit = float(attrs["effective_learning_rate"]), float(attrs["learning_rate_limit"])
        cautions.append(f"The learning rate {rate:.3g} exceeds {limit:.3g}, the limit of stability.")
    censored = dataset["censored"].values != 0
    if censored.any():
        unseen = f"{event.noun}s were not seen by the end (censored)."
        cautions.append(f"{int(censored.sum())} of {censored.size} {unseen}")
    losses = f"Loss of each run against flow time to t = {end:.4g}; the thick line is the median."
    times = f"{event.noun.capitalize()} times of the runs by direction; crosses mark the predicted time of the pair."
    drawings = [
        drawing_of(figures.plot_run_losses, dataset, caption=losses),
        drawing_of(figures.plot_run_times, dataset, caption=times),
    ]
    heads: dict[str, object] = {"p": dataset["direction"]}
    emerged = dataset["emergence_time"].values
    if "teacher_coefficient" in dataset:  # of a network the directions are the teacher's axes
        predicted = dataset.get("predicted_emergence_time", np.full(emerged.shape[1], None))
        heads |= {"a_p": dataset["teacher_coefficient"], "predicted, pair": predicted}
    first = Table(
        caption=f"{event.noun.capitalize()} times of the runs",
        rows=_quartiles(emerged, heads, f"runs that {event.past}"),
        note=f"Over {len(emerged)} runs; those in which the direction did not {event.verb} count as latest.",
        each="directions, spread over p",
    )
    tables = [first]
    if "component" in dataset:
        caption = "Components of the network over the teacher's: medians of the runs, with bands between the quartiles."
        drawings.append(drawing_of(figures.plot_run_components, dataset, caption=caption))
        heads = {"component": dataset["component_name"], "f*_α": dataset["teacher_component"]}
        learned = dataset["component_learned_time"].values
        table = Table(
            caption="Times at which components are learned",
            rows=_quartiles(learned, heads, "runs that learned it"),
            note=f"Over {len(learned)} runs; those in which f_α did not reach half of f*_α count as latest.",
            each="components, in their order",
        )
        tables.append(table)
    return report.run_findings(
        dataset,
        cautions=cautions,
        tables=tables,
        drawings=drawings,
        go_on="python -m sgd_check.run PREDICTION --resume {file}",
    )


def _quartiles(times: Array, heads: Mapping[str, object], counted: str) -> Rows:
    """Return rows that begin with the columns `heads`: the number of known times (runs, rows), and their quartiles."""
    quartiles = dict(zip(("first quartile", "median", "third quartile"), late_quartiles(times), strict=True))
    return records({**heads, counted: np.isfinite(times).sum(axis=0), **quartiles})


def sgd_study_findings(dataset: xr.Dataset) -> Findings:
    """Return the findings on a study of `python -m sgd_check.study`."""
    return report.study_findings(dataset, *STUDIES[dataset.attrs["answer"]].find(dataset), partial(plot_study, dataset))


def _token_parts(tree: xr.DataTree) -> Parts:
    """Return tables, drawings and values of a comparison of runs of a model of tokens with its equations.

    The table has one row per component, or a single row where the number of recovered items is compared.
    """
    parts = {name: node.to_dataset(inherit=False) for name, node in tree.children.items()}
    comparison, prediction, simulation = (parts[name] for name in ("comparison", "prediction", "simulation"))
    attrs, note = comparison.attrs, "Visible error: seen with probability 0.8."
    if "recovery" in prediction:
        names = {"distance": "relative_distance", "error": "relative_error", "p": "p_value"}
        numbers = {title: float(attrs[name]) for title, name in names.items()}
        rows, figure = [{"component": "recovered items", **numbers}], report.recovery_figure
    else:
        columns = {"component": "component", "predicted": "expected_time", "log ratio": "mean_log_ratio"}
        columns |= {"error": "standard_error", "p": "component_p_value", "visible error": "visible_error"}
        rows, figure = report.rows_of(comparison, columns), report.progress_figure
        note = f"Log ratio: without the effect of the batch. {note}"
    errors = {"log ratio": "error", "distance": "error"}
    table = Table(caption="Measured against predicted", rows=rows, note=note, errors=errors, each="components")
    caption = "Prediction as lines, runs as thin black lines or points."
    alt = "Prediction and runs. Their distances are in the table above."
    values = {"p_value": float(attrs["p_value"]), "components": rows}
    return [table], [Drawing(partial(figure, prediction, simulation), caption, alt)], values


def token_simulation_findings(dataset: xr.Dataset) -> Findings:
    """Return the findings on a dataset of runs of `sgd_check.tokens.simulate`, compared with nothing.

    They have the learned time of each component over the runs, or the numbers of recovered items where these are
    drawn.
    """
    if "recovery" in dataset:
        counts = dataset["recovered_count"].values
        items = f"{counts.size} draws recover {counts.mean():.4g} items, from {counts.min():.4g} to {counts.max():.4g}."
        return report.run_findings(dataset, sentences=[items], values={"recovered_counts": counts.tolist()})
    times = dataset["learned_time"]
    times = times.where(np.isfinite(times))
    spread = {"mean time": times.mean("seed"), "first": times.min("seed"), "last": times.max("seed")}
    rows = records({"component": dataset["component"].astype(str), "runs": times.count("seed"), **spread})
    return report.run_findings(
        dataset,
        sentences=[f"{dataset.sizes['seed']} runs at learning rate {dataset.attrs['learning_rate']:g}."],
        tables=[Table(caption="When each component is learned", rows=rows, each="components")],
        values={"stop_reason": dataset.attrs["stop_reason"], "components": rows},
    )
