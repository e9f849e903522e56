"""Answers along teacher directions: emergence against prediction, exponents, overlaps and loss."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dynamics.fits import FEWEST_POINTS, default_window, fit_power_law
from dynamics.problem import Problem
from dynamics.problem.checks import check_choice, check_switch, checked_integer
from dynamics.report import elements, figures
from dynamics.report.figures import BAND, IDEAL, MEASURED, PREDICTED, REFERENCE, finish_panel
from dynamics.report.findings import Drawing, Findings, Table, drawing_of, renamed, rows_of, run_findings
from dynamics.runs.dataset import stored_exponents
from dynamics.runs.variables import VARIABLES
from dynamics.solve.learning_steps import is_drawn, steps_of
from dynamics.solve.overlaps import GRAM_WARNING
from dynamics.theory.bands import CLOSE, FAR
from dynamics.theory.learning_rates import learning_rate_limit, resolved_rate
from hermite.text.messages import refuse, require, with_error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dynamics.fits import PowerLawFit
    from hermite.arrays import Array


RESUME_SOLVE = "python -m dynamics.solve --resume {file}"
#: Columns of the table of times: title, title if times are of the linearised flow (k <= 2), title in a terminal, key.
#: Columns without a title there are left out of it; no leading order is known of the linearised flow.
COLUMNS = (
    ("p", "p", "p", "direction"),
    ("a_p", "a_p", "a_p", "teacher_coefficient"),
    ("T_p, leading order", "", "T_p leading", "leading_order_time"),
    ("T_p, exact pair", "T_p, linearised", "predicted", "predicted_emergence_time"),
    ("emerged", "emerged", "emerged", "emergence_time"),
    ("emerged / pair", "emerged / linearised", "ratio", "ratio"),
    ("learned, pair", "learned, linearised", "", "predicted_learned_time"),
    ("learned", "learned", "learned", "learned_time"),
    ("search", "", "search", "search_share"),
    ("descent", "", "descent", "descent_share"),
    ("learning", "", "learning", "learning_share"),
)
#: Variables of the shares of a learned time, which links with c_0 ≠ 0 and older files do not have, and their meaning.
SHARES = ("search_share", "descent_share", "learning_share")
SHARED = """
search, descent, learning: shares of the pair's learned time until squared overlap 0.1, then until it emerges, then \
the rest."""
#: Meaning of the predicted times of matched pairs and their ratio.
PAIRS = """\
T_p, exact pair: of one neuron and one direction alone; T_p, leading order: to leading order in the starting overlap.
emerged / pair: the ratio of both times, far above 1 where another direction took or delayed that neuron.
"""
LINEARISED = "T_p, linearised: of the flow linearised at its start. emerged / linearised: the ratio of both times.\n"
EVENTS = "emerged: a neuron first has squared overlap {level}. learned: the neurons first carry half the weight."
#: Facts of a curve.
FACTS = elements.DIRECTION_FACTS | {
    elements.PREDICTED_TIME: "predicted_emergence_time",
    "emerged at t =": "emergence_time",
    "learned at t =": "learned_time",
}
#: Seconds of compiling from which they are told.
LEAST_COMPILING = 0.05
#: Text for learned times of a link that defines none.
NOT_DEFINED = "not defined"
#: Values of the coordinate `degree` -> their names, and the lines of these parts of the loss.
DEGREE_NAMES = {"0": "0", "1": "1", "2": "2", "rest": "3 and above"}
DEGREE_LINES = {"0": ("#cc79a7", "-."), "1": ("#e69f00", "--"), "2": ("#56b4e9", "-."), "rest": (IDEAL, "--")}
#: Colour of a kernel beside an answer.
KERNEL = "#7f5fbf"
#: Choices of `plot_loss` for its axis -> its name in the table of labels, and its symbol.
AXES_OF_LOSS = {"time": ("time", "t"), "steps": ("step", "s"), "samples": ("samples", "n")}
#: Part of the whole below which a part of a degree is empty.
NEGLIGIBLE = 1e-12


# --- findings ---------------------------------------------------------------------------------------------------------


def flow_findings(dataset: xr.Dataset) -> Findings:
    """Return the findings on an answer along teacher directions: of `solve_overlaps` and its relatives."""
    values, steps = flow_values(dataset), steps_of(dataset)
    optimizer = dataset.attrs.get("optimizer", "SGD")
    counted = list(map(str, steps))
    if steps:
        counted.insert(0, f"Steps of {optimizer} at learning rate {steps[0].learning_rate:.3g}:")
    values |= {"learning_steps": [asdict(step) for step in steps]} if steps else {}
    values |= {"kernel": beside} if (beside := kernel_rows(dataset)) else {}
    laws, rows = values["exponents"], values["directions"]
    limits = [
        f"x is of one start, whose loss falls in {len(rows)} steps, one per direction: another seed gives another x.",
        "The asymptotic x is the limit of many directions P and a large dimension d, where the steps are a power law.",
    ]
    if not any(math.isfinite(law["asymptotic"]) for law in laws):
        limits = []
    in_words = [*(f"{law['what']}: {law['text']}" for law in laws), *limits]
    note = "The fit uses the window alone; the asymptotic exponent stands beside it and is no part of it."
    expected = {"x, sum formula at this size": "sum_formula"}
    return run_findings(
        dataset,
        cautions=_cautions(dataset),
        sentences=[
            outcome(values),
            *_order_of_learning(dataset, rows),
            *numerical_errors(dataset),
            *optimizer_in_words(dataset),
            *bands_in_words(dataset),
            *samples_in_words(dataset),
            *counted,
            *kernel_in_words(dataset),
        ],
        tables=[
            _times(dataset, values),
            *degree_table(values),
            *exponent_table(laws, in_words, expected, " ".join([note, *limits])),
            *level_table(values),
            *kernel_table(dataset),
        ],
        drawings=_drawings(dataset),
        chart=elements.history_chart(dataset, renamed(told_directions(values), FACTS)),
        remarks=remarks(values),
        values=values,
        overview=partial(summary_figure, dataset),
        go_on=RESUME_SOLVE if dataset.attrs["answer"] == "overlaps" else "",
    )


def finite_part(values: Array) -> Array:
    """Return the finite ones of some values, in order: of a history those that were saved before the run ended."""
    return np.asarray(values[np.isfinite(values)])


def run_values(dataset: xr.Dataset, **values: Any) -> dict[str, Any]:
    """Return the end of a run, its last loss, the further `values` and its notes as plain values, ready for JSON."""
    attrs, finite = dataset.attrs, finite_part(dataset["loss"].values)
    return {
        "title": attrs["title"],
        "method": attrs.get("method"),
        "solve_seconds": attrs.get("solve_seconds"),
        "compile_seconds": attrs.get("compile_seconds"),
        "stop_reason": attrs.get("stop_reason", "reached_end"),
        "stop_message": attrs.get("stop_message", ""),
        "end_time": attrs.get("end_time", float(dataset["time"].values[-1])),
        # A difference of two sums, which rounding can take below 0.
        "final_loss": max(float(finite[-1]), 0.0) if finite.size else None,
        **values,
        "notes": attrs.get("notes", ""),
        "scaling_notes": attrs.get("scaling_notes", ""),
    }


def flow_values(dataset: xr.Dataset) -> dict[str, Any]:
    """Return the result as plain values: times per direction, exponents, how the run ended."""
    levels = {"level": "loss_level", "time": "loss_level_time"} if "loss_level_time" in dataset else {}
    times: tuple[str, ...] = (
        "direction",
        "teacher_coefficient",
        "matched_neuron",
        "leading_order_time",
        "predicted_emergence_time",
        "predicted_learned_time",
        "emergence_time",
        "learned_time",
    )
    times += SHARES if SHARES[0] in dataset else ()
    first = {"title": dataset.attrs["title"], "information_exponent": int(dataset.attrs["information_exponent"])}
    return first | run_values(
        dataset,
        directions=rows_of(dataset, {name: name for name in times}),
        learned_undefined=dataset["learned_time"].attrs.get("undefined", ""),
        degrees=degree_rows(dataset),
        exponents=exponents(dataset),
        loss_levels=rows_of(dataset, levels),
    )


def outcome(values: Mapping[str, Any]) -> str:
    """Return a sentence on the number of learned directions, or why it is not defined, and on the last loss."""
    rows = values["directions"]
    learned = sum(math.isfinite(row["learned_time"]) for row in rows)
    text = f"learned: {learned} of {len(rows)} directions by t = {values['end_time']:.5g}"
    if values["learned_undefined"]:
        text = f"learned: {NOT_DEFINED}, since {values['learned_undefined']}"
    return text if values["final_loss"] is None else f"{text}; loss at the end: {values['final_loss']:.4g}"


def told_directions(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the times by direction for tables, with "not defined" if the link defines no learned times."""
    unknown = ("predicted_learned_time", "learned_time") if values["learned_undefined"] else ()
    return [row | dict.fromkeys(unknown, NOT_DEFINED) for row in values["directions"]]


def _order_of_learning(dataset: xr.Dataset, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return sentences on directions that are learned before they emerge, or emerge at −θ without being learned."""
    sentences, share = [], dataset.attrs.get("far_side_share")
    if early := [row["direction"] for row in rows if row["learned_time"] < row["emergence_time"]]:
        sentences.append(
            f"Learned before emerged: direction {', '.join(map(str, early))}. Neurons that point only partly along it "
            f"carry half of its weight together before one of them has squared overlap {emergence_level(dataset)}; "
            "there the loss and the learned mass say more than emergence."
        )
    emerged = [
        r["direction"] for r in rows if math.isfinite(r["emergence_time"]) and not math.isfinite(r["learned_time"])
    ]
    if share is not None and emerged:
        sentences.append(
            f"Emerged, but not learned: direction {', '.join(map(str, emerged))}. The link has no parity: a neuron at "
            f"-theta has {share:.2g} of the direction and leaves {1.0 - share**2:.2g} of its loss, until another "
            "comes to theta."
        )
    return sentences


def remarks(values: Mapping[str, Any]) -> list[str]:
    """Return notes, method and seconds, line by line."""
    leads = {"notes": "note", "scaling_notes": "scaling laws"}
    lines = [f"{lead}: {values[name]}" for name, lead in leads.items() if values[name]]
    if values["method"]:
        compiling = values["compile_seconds"] or 0.0
        beside = f", after {compiling:.1f} s of compiling" if compiling >= LEAST_COMPILING else ""
        lines.append(f"method: {values['method']}, {values['solve_seconds']:.2f} s{beside}")
    return lines


def level_table(values: Mapping[str, Any]) -> list[Table]:
    """Return the table of the times at which the loss falls below levels, if any were asked for."""
    levels, sentence = values["loss_levels"], "loss below {level:g} E f*^2: t = "
    rows = renamed(levels, {"loss over E f*²": "level", "t": "time"})
    in_words = [sentence.format(**row) + elements.cell_text(row["time"], unknown="-") for row in levels]
    return [Table(caption="When the loss falls below a fraction", rows=rows, in_words=in_words)] if rows else []


def degree_rows(dataset: xr.Dataset) -> list[dict[str, object]]:
    """Return one row per part of f* by Hermite degree that is not 0: mean square, half time, and rest at the end.

    The half time is the time at which half of the part is left; between saved times a part is taken to be exponential,
    and inf stands for never below half. The list is empty where the loss is not told by degree.
    """
    if "degree_loss" not in dataset:
        return []
    is_saved = np.isfinite(dataset["loss"].values)
    time, losses, rows = dataset["time"].values[is_saved], dataset["degree_loss"].values[is_saved], []
    whole = dataset["teacher_by_degree"].values.tolist()
    for degree, value, part in zip(dataset["degree"].values.tolist(), whole, losses.T, strict=True):
        if value > NEGLIGIBLE * sum(whole):
            fall = -np.log(np.maximum(part, 0.5 * NEGLIGIBLE * value))
            half = figures.first_passage(time, fall, -math.log(0.5 * value))
            rows.append(
                {
                    "degree": DEGREE_NAMES[degree],
                    "in_teacher": value,
                    "half_time": math.inf if math.isnan(half) else half,
                    "left": max(float(part[-1]), 0.0) if part.size else math.nan,
                }
            )
    return rows


def degree_table(values: Mapping[str, Any]) -> list[Table]:
    """Return the table of the parts of f* by degree, if the loss is told by degree."""
    columns = {"degree": "degree", "E f*²": "in_teacher", "half is left at": "half_time", "left in the end": "left"}
    note = "Half is left: E(f - f*)² of the degree is half of its E f*². Degrees 0 to 2 tell no directions apart."
    rows = renamed(values["degrees"], columns)
    return [Table(caption="Parts of the teacher by Hermite degree", rows=rows, note=note)] if rows else []


def later_end(dataset: xr.Dataset) -> float:
    """Return ten times the last saved time, to one digit."""
    return float(f"{10.0 * dataset['time'].values[-1]:.0e}")


def _cautions(dataset: xr.Dataset) -> list[str]:
    """Return sentences on censored times, a learning rate beyond its limit, and a run that left its tolerance."""
    attrs, cautions, count = dataset.attrs, [], dataset.sizes["direction"]
    if missing := count - int(np.isfinite(dataset["emergence_time"].values).sum()):
        cautions.append(
            f"{missing} of {count} directions did not emerge by the end: their times are unknown (censored). With a "
            f"later `t_max`, such as {later_end(dataset):g}, they may emerge."
        )
    rate, limit = attrs.get("learning_rate", 0.0), attrs.get("learning_rate_limit", np.inf)
    if not isinstance(rate, str) and rate > limit:
        cautions.append(f"The learning rate {rate:.3g} exceeds {limit:.3g}, the limit of stability.")
    margin = attrs.get("smallest_gram_margin", 0.0)
    if margin < -GRAM_WARNING * attrs.get("rtol", 0.0):
        cautions.append(
            f"The run left its tolerance: no vectors have the computed overlaps (an eigenvalue reached {margin:.2g})."
        )
    return cautions


def numerical_errors(dataset: xr.Dataset, times: str = "emergence_time") -> list[str]:
    """Return sentences on known errors of the loss and of some times, by integration and by a cut series."""
    of_time = f"of {'an emergence' if times == 'emergence_time' else 'a learned'} time, relative,"
    sentences = []
    numerical = "Largest estimated numerical error", f" at rtol = {dataset.attrs.get('rtol', np.nan):g}."
    cutting = "Largest estimated error by cutting the series of the link", ", beside that of integration."
    for kind, (lead, end) in {"error": numerical, "truncation_error": cutting}.items():
        clauses = []
        for name, quantity in (("loss", "of the loss"), (times, of_time)):
            error = dataset[f"{name}_{kind}"].values if f"{name}_{kind}" in dataset else np.empty(0)
            if name == times and error.size:
                after_start = dataset[times].values > 0  # a time at the start has no relative error
                error = error[after_start] / dataset[times].values[after_start]
            if np.isfinite(error).any():
                clauses.append(f"{quantity} {np.nanmax(error):.2g}")
        if clauses:
            sentences.append(f"{lead} {' and '.join(clauses)}{end}")
    return sentences


def bands_of_overlaps(dataset: xr.Dataset) -> tuple[Array, Array, Array] | None:
    """Return the ends of 95 % of runs of the largest squared overlaps, (times, P), and R; None without bands."""
    ends = elements.ends_of_runs(dataset)
    return None if ends is None else (*ends, dataset["band_ratio"].values)


def bands_in_words(dataset: xr.Dataset) -> list[str]:
    """Return a sentence on the scatter of single runs, and one on where theory does not know it; none without bands."""
    if "band_ratio" not in dataset:
        return []
    time, ratio = dataset["time"].values, dataset["band_ratio"].values
    finite = np.flatnonzero(np.isfinite(ratio))
    if not finite.size:
        return ["Bands of single runs are not known: the mean path was not followed."]
    last, saved = finite[-1], np.flatnonzero(np.isfinite(dataset["loss"].values))
    deviation = dataset["loss_sd"].values[last]
    sentences = [
        f"Single runs: the loss at t = {time[last]:.5g} scatters by {deviation:.2g} (one standard deviation, to "
        f"leading order in the learning rate); R, the shift of a mean by the next order over its scatter, is at most "
        f"{np.nanmax(ratio):.2g}. Figures show bands of 95 %."
    ]
    if last < saved[-1]:
        sentences.append(f"Bands end at t = {time[last]:.5g}, from where on they were not followed.")
    wide, far = np.flatnonzero(ratio > CLOSE), np.flatnonzero(ratio > FAR)
    if wide.size:
        sentences.append(
            f"From t = {time[wide[0]]:.4g} to {time[wide[-1]]:.4g} R is over {CLOSE:g} at times: runs scatter at least "
            "as bands say there."
        )
    if far.size:
        sentences.append(
            f"From t = {time[far[0]]:.4g} to {time[far[-1]]:.4g} R is over {FAR:g} at times, where no band is drawn: "
            "runs must be drawn, by `sgd_check.simulate`."
        )
    return sentences


def emergence_level(dataset: xr.Dataset, usual: str = "1/2") -> str:
    """Return the squared overlap of emergence in words."""
    level = json.loads(dataset.attrs["parameters"])["problem"].get("emergence_level")
    return usual if level is None else f"{level:g}"


def _times(dataset: xr.Dataset, values: Mapping[str, object]) -> Table:
    """Return the table of predicted and measured times by direction."""
    rows = told_directions(values)
    for row in rows:
        row["ratio"] = row["emergence_time"] / (row["predicted_emergence_time"] or math.nan)
        shares = {name: row[name] for name in SHARES if math.isfinite(row.get(name, math.nan))}
        row |= {name: elements.Rounded(share, f"{share:.3f}") for name, share in shares.items()}
    linear = "prediction_theory" in dataset.attrs
    named = ((linearised if linear else title, short, key) for title, linearised, short, key in COLUMNS)
    titles = {title: (short, key) for title, short, key in named if title and (key not in SHARES or key in rows[0])}
    shared = SHARED if SHARES[0] in rows[0] else ""
    return Table(
        caption="Predicted times" if dataset.attrs["answer"] == "prediction" else "Emergence times against prediction",
        rows=renamed(rows, {title: key for title, (_, key) in titles.items()}),
        note=(LINEARISED if linear else PAIRS) + EVENTS.format(level=emergence_level(dataset)) + shared,
        each="directions, spread over p",
        short={title: short for title, (short, _) in titles.items() if short},
        digits=5,
    )


def _drawings(dataset: xr.Dataset) -> list[Drawing]:
    """Return the figures of overlaps, of the loss and of emergence times that the answer has."""
    drawings, count = [], dataset.sizes["direction"]
    predicted, emerged = (np.isfinite(dataset[n].values) for n in ("predicted_emergence_time", "emergence_time"))
    if any(name in dataset for name in elements.OVERLAPS.variables):
        caption = "Largest squared overlap of a neuron with each direction; ticks mark the predicted times."
        level, last = emergence_level(dataset, "one half"), float(dataset["time"][-1])
        more = f"{emerged.sum()} of {count} curves pass {level} by t = {last:.4g}."
        drawings.append(drawing_of(plot_emergence, dataset, caption=caption, more=more))
    saved = np.maximum(finite_part(dataset["loss"].values), 0.0)  # below zero they are rounding
    caption = "Loss against flow time, with the sum formula and the fitted exponent where there are such."
    more = f"It goes from {saved[0]:.3g} to {saved[-1]:.3g}." if saved.size else ""
    drawings.append(drawing_of(plot_loss, dataset, caption=caption, more=more))
    if (predicted & emerged).any():
        caption = "Measured against predicted emergence times; the line is equality."
        more = f"{predicted.sum()} directions have a prediction, {emerged.sum()} of {count} emerged."
        drawings.append(drawing_of(plot_emergence_times, dataset, caption=caption, more=more))
    return drawings


# --- power laws -------------------------------------------------------------------------------------------------------


def exponent_table(
    laws: Sequence[Mapping[str, Any]], in_words: list[str], expected: Mapping[str, str], note: str
) -> list[Table]:
    """Return a list with the table of fitted laws, empty if there is no law.

    `expected` maps the title of a column to the key of a law that has its expected exponent.
    """
    if not laws:
        return []
    columns = {"law": "what", "x, fitted": "fitted", "standard error": "standard_error", "from": "from", "to": "to"}
    columns |= {**expected, "x, asymptotic": "asymptotic"}
    rows = renamed([{**law, "from": law["window"][0], "to": law["window"][1]} for law in laws], columns)
    errors = {"x, fitted": "standard error"}
    return [Table(caption="Exponents", rows=rows, note=note, errors=errors, in_words=in_words)]


def exponents(dataset: xr.Dataset) -> list[dict[str, object]]:
    """Return fitted exponents, those of the sum formula at this size, and the asymptotic ones."""
    window = default_window(dataset)
    if window is None:
        return []
    laws = stored_exponents(dataset)
    time, loss = dataset["time"].values, dataset["loss"].values
    fits = [_law("loss ~ t^x", time, loss, window, laws.loss_time, _predicted_loss(dataset))]
    emerged, asymptotic = dataset["emergence_time"].values, laws.emergence_time_direction
    p = dataset["direction"].values[np.isfinite(emerged) & (emerged > 0)].astype(float)
    if p.size >= 8 and np.isfinite(asymptotic):
        times = dataset["emergence_time"].sel(direction=p).values
        fits.append(_law("T_p ~ p^x", p, times, (float(p[0]), float(p[-1])), asymptotic, None))
    return fits


def _law(
    what: str, x: Array, y: Array, window: tuple[float, float], asymptotic: float, predicted: Array | None
) -> dict[str, object]:
    """Return the fitted power law of y in x, as values by name, with the exponents of theory beside it.

    `window` is the range of x of the fit; `predicted` are the values of y by the sum formula, None without one; `what`
    names the law in words.
    """
    good = np.isfinite(y) & (y > 0) & (x > 0)
    fit = fit_power_law(x[good], y[good], window=window)
    finite_size, expected = None, ""
    good &= predicted is not None and predicted > 0
    # The sum formula may have fallen to 0, or end, before the window.
    if predicted is not None and np.count_nonzero(good & (x >= window[0]) & (x <= window[1])) >= FEWEST_POINTS:
        finite_size = fit_power_law(x[good], predicted[good], window=window).exponent
        expected = f"; sum formula at this size {finite_size:.3f}"
    law = fitted_law(what, fit, asymptotic)
    return law | {"sum_formula": finite_size, "text": law_in_words(law, expected)}


def fitted_law(what: str, fit: PowerLawFit, asymptotic: float) -> dict[str, object]:
    """Return a fitted power law and its asymptotic exponent (NaN if unknown) as values."""
    fitted = {"fitted": fit.exponent, "standard_error": fit.standard_error, "window": list(fit.window)}
    return {"what": what, **fitted, "asymptotic": asymptotic}


def law_in_words(law: Mapping[str, Any], expected: str) -> str:
    """Return a fitted exponent with error and window, the text `expected`, and the asymptotic exponent in words."""
    (start, end), asymptotic = law["window"], law["asymptotic"]
    limit = f"asymptotic {asymptotic:.3f}" if math.isfinite(asymptotic) else "no asymptotic law"
    return f"x = {with_error(law['fitted'], law['standard_error'])} on [{start:.3g}, {end:.3g}]{expected}; {limit}"


# --- flow time in samples of online SGD -------------------------------------------------------------------------------


def samples_of_one(dataset: xr.Dataset) -> tuple[float, str] | None:
    """Return the samples in one unit of flow time, and the learning rate in words; None where no one rate is known.

    The rate is that of the answer, and a tenth of `learning_rate_limit` for a flow, which has none.
    """
    attrs = dataset.attrs
    if "schedule" in attrs:
        return None
    if "step_theory" in attrs:
        rate, size = float(attrs["learning_rate"]), int(attrs["batch_size"])
        words = f"learning rate {rate:.3g}" + ("" if size == 1 else f" and {size} samples per step")
        return size / rate, words + (f" of {attrs['optimizer']}" if "optimizer" in attrs else "")
    try:
        limit = learning_rate_limit(Problem.from_dataset(dataset))
    except ValueError:  # none is known
        return None
    return 10.0 / limit, f"learning rate {limit / 10.0:.3g}, a tenth of the largest stable one"


def optimizer_in_words(dataset: xr.Dataset) -> list[str]:
    """Return a sentence on the optimizer, if one is named, with the last loss of its average."""
    if "optimizer" not in dataset.attrs:
        return []
    lead = f"Steps are those of {dataset.attrs['optimizer']} at learning rate {dataset.attrs['learning_rate']:.3g}"
    if "average_loss" not in dataset:
        return [f"{lead}."]
    last, average = (dataset[name].values[np.isfinite(dataset["loss"].values)][-1] for name in ("loss", "average_loss"))
    return [f"{lead}; the average of the weights ends at loss {average:.4g}, the weights at {last:.4g}."]


def samples_in_words(dataset: xr.Dataset) -> list[str]:
    """Return sentences on flow time in samples, with the last emergence as example; none for gradient descent."""
    if "learning_rate" in dataset.attrs and "step_theory" not in dataset.attrs:
        return []  # gradient descent on the mean loss draws no samples
    unit = samples_of_one(dataset)
    if unit is None:
        return ["Flow time is learning rate times steps of SGD."]
    count, rate = unit
    sentences = [f"Flow time in samples of SGD: t = 1 is {count_text(count)} at {rate}."]
    last = max((time for time in dataset["emergence_time"].values.tolist() if time < math.inf), default=0.0)
    if last > 0.0:
        sentences.append(f"The last emergence, t = {last:.5g}, is after {count_text(count * last)} samples.")
    if last > 0.0 and is_drawn(Problem.from_dataset(dataset)):
        sentences.append(
            "These are times without noise. Noise of samples may multiply them: `dynamics.learning_steps`, or the "
            "option --learning-steps, gives the interval of 95 % of runs for a direction."
        )
    return sentences


def kernel_rows(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """Return one row per level of the error: samples of SGD and of the kernel beside it, and how many times fewer.

    Each is the number until this part of its error at the start is left: inf for never, NaN if the run ends before, or
    if a kernel needs more than 1e18.
    The list is empty if the answer has no kernel beside it, or no samples.
    """
    unit = samples_of_one(dataset) if "kernel_error" in dataset else None
    if unit is None:
        return []
    saved = np.isfinite(dataset["loss"].values)
    time, loss, rows = dataset["time"].values[saved], dataset["loss"].values[saved], []
    for level, count in json.loads(dataset.attrs["kernel_levels"]).items():
        passed = figures.first_passage(time, -loss, -float(level) * float(loss[0])) if loss.size else math.nan
        sgd, kernel = unit[0] * passed, math.inf if count is None else float(count)
        rows.append({"level": float(level), "sgd": sgd, "kernel": kernel, "ratio": kernel / sgd if sgd else math.nan})
    return rows


def kernel_table(dataset: xr.Dataset) -> list[Table]:
    """Return the table of the samples of SGD and of the kernel beside it, if there is one."""
    titles = {"error left": "level", "SGD": "sgd", "kernel": "kernel", "kernel / SGD": "ratio"}
    note = (
        "error left: part of the error at the start; samples until it is left. kernel / SGD: above 1 SGD needs fewer."
    )
    rows = renamed(kernel_rows(dataset), titles)
    return [Table(caption="Samples of SGD and of a kernel", rows=rows, note=note)] if rows else []


def kernel_in_words(dataset: xr.Dataset) -> list[str]:
    """Return sentences on the kernel beside an answer, its inputs, and how many times fewer samples SGD needs."""
    if "kernel_error" not in dataset:
        return []
    attrs, rows = dataset.attrs, kernel_rows(dataset)
    sentences = [
        f"Beside it the kernel '{attrs['kernel']}' of {attrs['kernel_link']}, online at learning rate "
        f"{float(attrs['kernel_rate']):.3g}, inputs uniform on the sphere |x| = √d, where it is exact."
    ]
    reached = [row for row in rows if not math.isnan(row["ratio"])]
    if reached:
        row = reached[-1]
        factor, part = row["ratio"], f"Until {row['level']:g} of the error is left"
        if math.isinf(row["kernel"]):
            sentences.append(f"{part} SGD needs {count_text(row['sgd'])} samples; the kernel never gets there.")
        else:
            words = f"{factor:.3g} times fewer" if factor >= 1.0 else f"{1.0 / factor:.3g} times more"
            sentences.append(f"{part} SGD needs {words} samples than the kernel.")
    elif rows and math.isnan(rows[0]["kernel"]):
        sentences.append("The kernel needs more than 1e+18 samples until half of its error is left.")
    elif rows:
        sentences.append("The run ends before half of its error is left, so that its samples are not compared.")
    return sentences


def count_text(count: float) -> str:
    """Return a number of samples with three significant digits.

    Examples
    --------
    >>> count_text(26041.7), count_text(123456789.0)
    ('26,000', '1.23e+08')
    """
    return f"{count:.3g}" if count >= 1e7 else f"{float(f'{count:.3g}'):,.0f}"


# --- figures ----------------------------------------------------------------------------------------------------------


def plot_loss(
    dataset: xr.Dataset,
    ax: Axes | None = None,
    *,
    fit: bool = True,
    x: Literal["time", "steps", "samples"] = "time",
    learning_rate: float | str | None = None,
    batch_size: int | None = None,
    style: str | None = None,
) -> Axes:
    """Draw loss against time, steps or samples on log axes, with the sum formula, the fit and the asymptotic slope.

    Where the answer has `degree_loss`, the parts of the loss of each Hermite degree are drawn below it. The fit is
    drawn dashed over its window only; the asymptotic exponent, where there is one, is a dotted reference line beside it
    and never part of the fit. A kernel beside the answer, of the option --kernel, is dashed.

    Parameters
    ----------
    dataset : Dataset
        Any answer with `loss(time)`.
    ax : Axes, optional
        By default new ones in a `style` (see `figure_style`); they are returned.
    fit : bool, default True
        Draw the fitted power law, whose exponent is the same along each axis.
    x : {"time", "steps", "samples"}, default "time"
        Flow time t, steps t/η of SGD, or their samples B t/η.
    learning_rate, batch_size : optional
        η > 0, dimensionless, or a share of the limit of stability such as "0.1x", and B ≥ 1: by default those of the
        answer, or else B = 1. Steps and samples of a flow need η. TypeError or ValueError is raised if it is unknown,
        not that of the answer, or given for an axis of time.

    Examples
    --------
    >>> import dynamics
    >>> problem = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([0.8, 0.6]), width=8, dimension=64)
    >>> ax = plot_loss(dynamics.solve_decoupled(problem), x="steps", learning_rate="0.1x")
    >>> ax.get_xlabel(), ax.get_yscale()
    ('number of SGD steps $s$', 'log')
    """
    check_switch("fit", fit)
    figures.check_drawable(dataset, loss=("time",))
    scale = _scale_of_axis(dataset, x, learning_rate, batch_size)
    (axis, symbol), ax = AXES_OF_LOSS[x], figures.axes_or_new(ax, style)
    time, loss = scale * dataset["time"].values, dataset["loss"].values
    shown = np.isfinite(loss) & (time > 0)
    label = figures.steps_in_words(dataset.attrs) or "flow"
    label = "sum formula" if dataset.attrs["answer"] == "prediction" else label
    label = "of the weights" if "average_loss" in dataset else "new samples" if "train_loss" in dataset else label
    ax.loglog(time[shown], np.maximum(loss[shown], 1e-300), color=MEASURED, lw=1.8, label=label)
    if "loss_sd" in dataset:
        width = elements.RUNS * dataset["loss_sd"].values[shown]
        ends = np.maximum(loss[shown] - width, 1e-300), loss[shown] + width
        figures.draw_runs(ax, time[shown], ends, dataset["band_ratio"].values[shown], MEASURED)
    sums = _predicted_loss(dataset)
    if sums is not None:
        positive = sums > 0
        ax.loglog(time[positive], sums[positive], color=PREDICTED, lw=1.0, drawstyle="steps-post", label="sum formula")
    window = default_window(dataset) if fit else None
    if window is not None:
        law = fit_power_law(time[shown], loss[shown], window=(scale * window[0], scale * window[1]))
        # The fit is of one start and finitely many directions.
        draw_fit(ax, law, stored_exponents(dataset).loss_time, "asymptotic (P, d → ∞)", symbol)
    drawn = [loss[shown]]
    for name, more in {"average_loss": "of the average", "train_loss": "training samples"}.items():
        if name in dataset:
            drawn.append(dataset[name].values[shown])
            ax.loglog(time[shown], np.maximum(drawn[-1], 1e-300), color=MEASURED, lw=1.4, ls=":", label=more)
    for row in degree_rows(dataset):
        degree = next(key for key, name in DEGREE_NAMES.items() if name == row["degree"])
        drawn.append(dataset["degree_loss"].sel(degree=degree).values[shown])
        colour, line = DEGREE_LINES[degree]
        part, name = np.maximum(drawn[-1], 1e-300), f"degree {row['degree']}"
        ax.loglog(time[shown], part, color=colour, ls=line, lw=1.2, label=name)
    if "kernel_error" in dataset and (unit := samples_of_one(dataset)) is not None:
        drawn.append(dataset["kernel_error"].values)
        name = f"kernel '{dataset.attrs['kernel']}', on the sphere"
        x_of_kernel = dataset["kernel_samples"].values * scale / unit[0]
        ax.loglog(x_of_kernel, np.maximum(drawn[-1], 1e-300), color=KERNEL, ls="--", lw=1.4, label=name)
    positive = np.concatenate([curve[curve > 0] for curve in drawn])
    if positive.size:
        ax.set_ylim(max(positive.min() * 0.5, 1e-7 * positive.max()), 2.0 * positive.max())
    finish_panel(ax, axis, "loss")
    return ax


def _scale_of_axis(dataset: xr.Dataset, x: object, learning_rate: object, batch_size: object) -> float:
    """Return the steps or samples in one unit of flow time, 1 for an axis of time; refuse any other axis."""
    check_choice("x", x, tuple(AXES_OF_LOSS))
    settings = {"learning_rate": learning_rate, "batch_size": batch_size}
    for name, value in settings.items():
        require(x != "time" or value is None, f"Argument `{name}` must be None where `x` is 'time', but is {value}.")
        stored = dataset.attrs.get(name)
        require(
            value is None or stored is None or value == stored,
            f"Argument `{name}` must be that of the answer, {stored}, but is {value}.",
        )
        settings[name] = stored if value is None else value
    if x == "time":
        return 1.0
    size = 1 if settings["batch_size"] is None else checked_integer(settings["batch_size"], "batch_size", minimum=1)
    require(
        "schedule" not in dataset.attrs,
        f"Argument `x` must be 'time' for an answer whose learning rate varies, but is {x!r}; its coordinate `step` "
        "has the steps.",
    )
    rate = resolved_rate(Problem.from_dataset(dataset), settings["learning_rate"], size)
    if rate is None:
        refuse(
            f"Argument `learning_rate` must be given for `x` = {x!r} of an answer that has none, but is absent.",
            TypeError,
        )
    return (1 if x == "steps" else size) / rate


def draw_fit(ax: Axes, fit: PowerLawFit, asymptotic: float, limit: str, symbol: str = "t") -> None:
    """Draw a power law over its window, and the asymptotic slope, named `limit`, above it if any.

    `symbol` is that of the axis.
    """
    span, x, middle = np.array(fit.window), fit.exponent, np.sqrt(np.prod(fit.window))
    label = f"fit: {figures.power(symbol, x, fit.standard_error)}"
    ax.loglog(span, fit.prefactor * span**x, "k--", lw=1.2, label=label)
    if np.isfinite(asymptotic):
        line = 2.5 * fit.prefactor * middle**x * (span / middle) ** asymptotic
        ax.loglog(span, line, ":", color=REFERENCE, lw=1.4, label=f"{limit}: {figures.power(symbol, asymptotic)}")


def plot_emergence(dataset: xr.Dataset, ax: Axes | None = None, *, style: str | None = None) -> Axes:
    """Draw the squared overlap of each direction against time; ticks below mark the predicted emergence times.

    The answer must have an overlap history, `teacher_overlap`, `max_overlap` or `overlap`, or ValueError is raised.
    `ax` are the axes, by default new ones in a `style` (see `figure_style`); they are returned.

    Examples
    --------
    >>> import dynamics
    >>> problem = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([0.8, 0.6]), width=8, dimension=64)
    >>> ax = plot_emergence(dynamics.solve_decoupled(problem))
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('flow time $t$ (ticks: predicted)', 'largest squared overlap $C^2$')
    """
    figures.check_drawable(dataset, predicted_emergence_time=("direction",))
    histories = {name: VARIABLES[name].dims for name in elements.OVERLAPS.variables if name in dataset}
    figures.check_drawable(dataset, **dict(list(histories.items())[:1]))
    squared, ax = elements.squared_overlap(dataset), figures.axes_or_new(ax, style)
    ax.set_ylim(-0.08, 1.05)
    names, predicted = range(1, squared.shape[1] + 1), dataset["predicted_emergence_time"].values
    figures.draw_histories(ax, dataset["time"].values, squared, ("$p$", names), predicted, bands_of_overlaps(dataset))
    figures.draw_threshold(ax, Problem.from_dataset(dataset).emergence_level, "emerged")
    # Where no curves are: at the left, unless many begin high.
    place = "center left" if np.nanmax(squared[0], initial=0.0) < 0.2 else "lower right"
    finish_panel(ax, "predicted_ticks", "largest_squared_overlap", loc=place)
    return ax


def plot_emergence_times(dataset: xr.Dataset, ax: Axes | None = None, *, style: str | None = None) -> Axes:
    """Draw measured emergence times against the predicted ones, with the diagonal; unlearned directions as arrows.

    The answer must have `emergence_time` and the predictions, or ValueError is raised.
    `ax` are the axes, by default new ones in a `style` (see `figure_style`); they are returned.

    Examples
    --------
    >>> import dynamics
    >>> problem = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([0.8, 0.6]), width=8, dimension=64)
    >>> ax = plot_emergence_times(dynamics.solve_overlaps(problem, progress=False))
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('predicted emergence time', 'measured emergence time')
    """
    names = ("predicted_emergence_time", "leading_order_time", "emergence_time")
    ax = figures.axes_for(dataset, ax, style, **dict.fromkeys(names, ("direction",)), time=("time",))
    exact, leading, measured = (dataset[name].values for name in names)
    both = _has_both_times(dataset)
    if not both.any():
        ax.text(0.5, 0.5, "no direction has both times", ha="center", transform=ax.transAxes)
        return ax
    points = np.flatnonzero(both)[figures.spread_rows(int(both.sum()), 2000)]
    ax.loglog(leading[points], measured[points], "s", mfc="none", color=REFERENCE, ms=5, label="leading order")
    theory = dataset.attrs.get("prediction_theory", "exact transit of the pair")
    ax.loglog(exact[points], measured[points], "o", color=MEASURED, ms=5, label=theory)
    if "emergence_time_error" in dataset:
        errors = dataset["emergence_time_error"].values
        seen = points[errors[points] > 0.01 * measured[points]]  # smaller ones hide behind the points
        ax.errorbar(exact[seen], measured[seen], BAND * errors[seen], fmt="none", color=MEASURED, capsize=2)
    times = np.concatenate([exact[points], measured[points]])
    ends = [0.7 * times.min(), 1.4 * times.max()]
    ax.plot(ends, ends, "-", color=REFERENCE, lw=0.8, zorder=0)
    late = exact[np.isfinite(exact) & ~np.isfinite(measured)]
    if late.size:
        last = np.full(late.size, dataset["time"].values[-1])
        ax.loglog(late, last, "^", color=PREDICTED, ms=6, label="not emerged by the end")
    finish_panel(ax, "predicted_emergence_axis", "measured_emergence_axis")
    return ax


def summary_figure(dataset: xr.Dataset) -> Figure:
    """Return one figure with overlaps, loss and emergence times."""
    plots = [
        *([plot_emergence] if any(name in dataset for name in elements.OVERLAPS.variables) else []),
        plot_loss,
        *([plot_emergence_times] if _has_both_times(dataset).any() else []),
    ]
    figure = figures.row_of(dataset, plots, (13.0 if len(plots) > 1 else 6.8, 4.2))
    if (unit := samples_of_one(dataset)) is not None:
        meaning = f"flow time $t = 1$ is {count_text(unit[0])} samples of SGD at {unit[1]}"
        figure.suptitle(f"{figures.headline(dataset)}\n{meaning}", fontsize="medium")
    return figure


def _has_both_times(dataset: xr.Dataset) -> Array:
    """Return whether directions have a predicted and a measured emergence time, both after the start."""
    times = np.array([dataset["predicted_emergence_time"].values, dataset["emergence_time"].values])
    return np.asarray((np.isfinite(times) & (times > 0)).all(axis=0))


def _predicted_loss(dataset: xr.Dataset) -> Array | None:
    """Return the loss of the sum formula (times,), None if the answer lacks it or it is not finite."""
    loss = dataset["predicted_loss"].values if "predicted_loss" in dataset else None
    return None if loss is None or not np.isfinite(loss).all() else loss
