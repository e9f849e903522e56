"""Findings of the studies of the step size: points, and fitted exponents beside theory's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report import transfer_told
from hermite.text.messages import with_error
from sgd_check.studies.sgd_study import log_means

if TYPE_CHECKING:
    from collections.abc import Iterator

    import xarray as xr

    #: What a study found, as plain values, and what is to be said about it.
    Told = tuple[dict[str, Any], list[str]]


def study_told(dataset: xr.Dataset) -> Told:
    """Return what a study found, `points` and `fits` or single numbers, and what is to be said about it."""
    return _TOLD[dataset.attrs["answer"]](dataset)


def rows_of(dataset: xr.Dataset) -> Iterator[tuple[dict[str, Any], xr.Dataset]]:
    """Yield the curves of a study of the sample complexity: k, and e where the landscape is smoothed, and its part."""
    one = dataset.isel(direction=0)
    exponents = one["smoothing_exponent"].values.tolist() if "smoothing_exponent" in one.dims else [None]
    for k in one["information_exponent"].values.tolist():
        for e in exponents:
            of_link = one.sel(information_exponent=k)
            yield ({"k": k}, of_link) if e is None else ({"k": k, "e": e}, of_link.sel(smoothing_exponent=e))


def _complexity(dataset: xr.Dataset) -> Told:
    points, fits = [], []
    for name, one in rows_of(dataset):
        rate = one["step_size"].values
        mean, error = log_means(one["emergence_step"].values)
        for at, d in enumerate(one["dimension"].values.tolist()):
            points.append(
                {
                    **name,
                    "d": d,
                    "eta": rate[at],
                    "steps": np.exp(mean[at]),
                    "s.e.": np.exp(mean[at]) * error[at],
                    "equation": one["finite_step_time"].values[at] / rate[at],
                    "flow": one["predicted_emergence_time"].values[at] / rate[at],
                    "z": one["time_deviation"].values[at],
                    "censored": one["censored_share"].values[at],
                    "blown_up": one["blown_up_share"].values[at],
                }
            )
        exponent, spread = one["exponent"].values, float(one["exponent_error"].values[0])
        fits.append(
            {
                **name,
                "exponent": exponent[0],
                "standard_error": spread,
                "equation": exponent[1],
                "flow": exponent[2],
                "asymptotic": exponent[3],
                "z_asymptotic": (exponent[0] - exponent[3]) / spread,
                "z_equation": (exponent[0] - exponent[1]) / spread,
                "p_value": float(one["p_value"].values),
            }
        )
    return {"points": points, "fits": fits}, _complexity_sentences(fits)


def _complexity_sentences(fits: list[dict[str, Any]]) -> list[str]:
    lines = []
    for fit in fits:
        k, e = fit["k"], fit.get("e")
        smoothed = "" if e is None else f", smoothed by d^{e:g}" if e else ", not smoothed"
        law = "k - 1" if e is None else "k - 1 - (2 k - 4) e"
        # η ~ d^(−k/2) λ^(2k − 2).
        share = k / 2 - (2 * k - 2) * (e or 0.0)
        time = f"k/2 - 1 = {k / 2 - 1:g}" if e is None else f"{fit['asymptotic'] - share:g} as d grows"
        lines.append(
            f"k = {k}{smoothed}: steps ~ d^x, x = {with_error(fit['exponent'], fit['standard_error'])} by SGD; at "
            f"these d {fit['equation']:.3f} by the finite-step equation, {fit['flow']:.3f} by the flow; {law} = "
            f"{fit['asymptotic']:g}. SGD's x is {fit['z_asymptotic']:+.1f} standard errors from {law} and "
            f"{fit['z_equation']:+.1f} from the equation's; its times agree with the equation's at p = "
            f"{fit['p_value']:.2g}. In flow time: {fit['exponent'] - share:.3f} by SGD, {time}."
        )
    lines.append("Standard errors: from the scatter over runs. z: mean ln(steps) against the equation, in these.")
    return lines


def _discretisation(dataset: xr.Dataset) -> Told:
    limit, points = dataset.attrs["learning_rate_limit"], []
    predicted = dataset["predicted_samples_needed"].values
    flow = dataset["predicted_emergence_time"].values
    for at, target in enumerate(dataset["target"].values.tolist()):
        needed = dataset["samples_needed"].values[at]
        mean, error = log_means(needed)
        emerged = dataset["emergence_time"].values[at, :, target - 1]
        points.append(
            {
                "wanted": target,
                "eta/limit": float(dataset["step_size"].values[at]) / limit,
                "loss": float(dataset["target_loss"].values[at]),
                "samples": np.exp(mean),
                "s.e.": np.exp(mean) * error,
                "theory": predicted[at],
                "z": (mean - np.log(predicted[at])) / error,
                "last_delay": np.median(np.where(np.isnan(emerged), np.inf, emerged)) / flow[target - 1],
                "missed": float(np.isnan(needed).mean()),
                "blown_up": float(dataset["blown_up_share"].values[at]),
            }
        )
    fits: list[dict[str, Any]] = [
        {"source": str(source), "exponent": float(x), "standard_error": float(error)}
        for source, x, error in zip(
            dataset["source"].values, dataset["exponent"].values, dataset["exponent_error"].values, strict=True
        )
    ]
    sgd, same, large, ideal, law = (with_error(fit["exponent"], fit["standard_error"]) for fit in fits)
    sentences = [
        f"loss ~ samples^x: {sgd} by SGD (error from the scatter over runs), {same} by theory for the same problem.",
        f"At the large size {large} by theory, {ideal} by the ideal sum (errors: jackknife over targets).",
        f"Asymptotically {law}, which is no prediction for the small problem. Last delay: median emergence of the "
        "last wanted direction over the flow's. Missed: share of runs that did not reach the loss; no fit uses them.",
    ]
    return {"points": points, "fits": fits}, sentences


def _step_size(dataset: xr.Dataset) -> Told:
    attrs = dataset.attrs
    shown = int(attrs["shown_direction"]) - 1
    flow = float(dataset["predicted_emergence_time"].values[shown])
    limit = float(attrs.get("learning_rate_limit", math.nan))
    points = []
    for at, rate in enumerate(dataset["learning_rate"].values.tolist()):
        blown = float(dataset["blown_up_share"].values[at])
        time = dataset["emergence_time"].values[at, :, shown]
        # Runs that were lost count as infinite; those that were not run as unknown.
        known = np.sort(np.where(np.isnan(time), math.nan if math.isnan(blown) else math.inf, time))
        low, middle, high = (known[round(q * (known.size - 1))] for q in (0.25, 0.5, 0.75))
        points.append(
            {
                "eta": rate,
                "eta/limit": rate / limit,
                "median/flow": middle / flow,
                "quartile_1": low / flow,
                "quartile_3": high / flow,
                "equation/flow": float(dataset["finite_step_time"].values[at, shown]) / flow,
                "not_emerged": float(dataset["censored_share"].values[at, shown]),
                "blown_up": blown,
            }
        )
    names = ("largest_faithful_rate", "largest_faithful_rate_of_equation", "half_blown_up_rate", "learning_rate_limit")
    numbers = {name: float(attrs.get(name, math.nan)) for name in names}
    errors = {f"{name}_error": float(attrs[f"{name}_error"]) for name in (names[0], names[2])}
    summary = {"points": points, "direction": shown + 1, "flow": flow, **numbers, **errors}
    return summary, _step_size_sentences(summary)


def _step_size_sentences(summary: dict[str, Any]) -> list[str]:
    limit = summary["learning_rate_limit"]

    def shown(name: str) -> str:
        rate, error = summary[name], summary.get(f"{name}_error", math.nan)
        if math.isnan(rate):
            return "beyond the range studied"
        return f"{with_error(rate, error)} = {rate / limit:.2f} of the limit"

    return [
        f"Direction {summary['direction']} emerges at t = {summary['flow']:.4g} in the flow; limit {limit:.4g}.",
        f"SGD's median is within 10 % of the flow up to {shown('largest_faithful_rate')}, "
        f"the finite-step equation up to {shown('largest_faithful_rate_of_equation')}.",
        f"Half of the runs blow up from {shown('half_blown_up_rate')} on, within the time that was run.",
    ]


def _calibration(dataset: xr.Dataset) -> Told:
    points, limit = [], float(dataset.attrs["learning_rate_limit"])
    for rate in dataset["learning_rate"].values.tolist():
        for case in dataset["case"].values.tolist():
            one = dataset.sel(learning_rate=rate, case=case)
            counts = dict(zip(one["verdict"].values.tolist(), one["verdict_count"].values.tolist(), strict=True))
            repetitions = sum(counts.values())
            shares = {verdict: count / max(repetitions, 1) for verdict, count in counts.items()}
            # With no event, or nothing else, one more of either kind gives the error its scale.
            share = (counts["disagree"] + 1) / (repetitions + 2)
            error = math.sqrt(share * (1 - share) / max(repetitions, 1))
            seen = float(one["visible_error"].values[0])
            points.append(
                {"eta/limit": rate / limit, "case": case, **shares, "s.e.": error, "visible_error": seen}
                | {"repetitions": int(repetitions)}
            )
    sentences = [
        f"At {point['eta/limit']:.3g} of the limit, {point['case']}: disagree "
        f"{with_error(100 * point['disagree'], 100 * point['s.e.'])} %, agree {100 * point['agree']:.1f} %, "
        f"undecided {100 * point['undecided']:.1f} %."
        for point in points
    ]
    return {"points": points}, sentences


def _full_batch(dataset: xr.Dataset) -> Told:
    law = dataset["predicted_overlap_squared"].sel(law_ratio=dataset["ratio"].values, method="nearest").values
    points = [
        {
            "d": d,
            "n/d": ratio,
            "overlap": float(dataset["overlap_squared"].values[at, column].mean()),
            "law": float(law[column]),
            "descent": float(dataset["descent_overlap_squared"].values[at, column].mean()),
            "recovered": float(dataset["recovered_share"].values[at, column]),
        }
        for at, d in enumerate(dataset["dimension"].values.tolist())
        for column, ratio in enumerate(dataset["ratio"].values.tolist())
    ]
    d = dataset["online_dimension"].values
    online = (dataset["online_samples"].values.mean(axis=1) / d).tolist()
    attrs = dataset.attrs
    measured, error = (attrs.get(f"online_slope_{name}", math.nan) for name in ("measured", "error"))
    sentences = [
        f"Overlap: squared, of the first eigenvector; its law begins at n/d = {attrs['threshold_ratio']:.4g}.",
        "Recovered: share of the runs of descent with squared overlap above 0.99, of which there is no closed theory.",
        "Online SGD: n/d = "
        + ", ".join(f"{value:.4g} at d = {each}" for each, value in zip(d.tolist(), online, strict=True))
        + f"; slope in ln d {with_error(measured, error)}, by the mean step {attrs['online_slope']:.2f}.",
    ]
    numbers = {name: attrs.get(name) for name in ("threshold_ratio", "online_slope", "exact_recovery_theory")}
    return {"points": points, **numbers, "online": dict(zip(map(str, d.tolist()), online, strict=True))}, sentences


_TOLD = {
    "full-batch": _full_batch,
    "calibration": _calibration,
    "sample-complexity": _complexity,
    "unstable-discretisation": _discretisation,
    "step-size": _step_size,
    "transfer": transfer_told,
}
