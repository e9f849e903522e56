r"""Every claim of the founding paper and its companions in one report: what each says, and what is measured here.

A part measures one or several claims by the studies of this room, at sizes that take minutes in all. A claim holds
where its number agrees within two errors or 5 %, unless the error is above a quarter of the claim. A constant that
differs by a factor of 3 at most "holds with another constant", since the papers claim orders; any other number that
differs holds "not at this size". A number that its measurement implies is "true by construction".
"""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Literal, NamedTuple, cast

import numpy as np
import xarray as xr

from dynamics.commands.catalogue import study_function
from dynamics.fits import fit_power_law, fit_slope
from dynamics.laws.composition import composition
from dynamics.laws.decoupling import decoupling
from dynamics.laws.edges import stability_edges
from dynamics.laws.frontier import frontier
from dynamics.laws.layerwise import layerwise_chances, layerwise_loss, width_for, width_study
from dynamics.laws.methods import minimax_loss
from dynamics.laws.scaffold import Free, FreeStudy, under_way
from dynamics.laws.scaling import scaling_study
from dynamics.laws.surface import fit_surface
from dynamics.laws.theorem import theorem_study
from dynamics.problem import Problem, Teacher
from dynamics.problem.checks import check_type, checked_integer, require
from dynamics.problem.saved_times import SaveAt
from dynamics.runs.dataset import Values
from dynamics.runs.result import uninterrupted
from dynamics.runs.storage import load_answer
from dynamics.solve.decoupled import predict_emergence
from dynamics.sweeps.points import find_study, study_path
from dynamics.theory.shares import learning_shares
from hermite import gradient_signal
from hermite.arrays import Array
from hermite.exponents.generative import generative_exponent
from hermite.text.messages import not_a_choice, shown

Kind = Literal["exponent", "constant", "bound", "floor", "printed"]
ANSWER, TITLE = "paper", "Claims of the founding papers, each measured"
HOLDS, CONSTANT, SIZE = "holds", "holds with another constant", "not at this size"
MISPRINTED, IDENTITY = "does not hold as printed", "true by construction"
UNRESOLVED, UNMEASURED = "not resolved", "not measured"
VERDICTS = (HOLDS, CONSTANT, SIZE, MISPRINTED, IDENTITY, UNRESOLVED, UNMEASURED)
#: Relative distance from a claimed number that counts as none, and the same of a slope that is to be 0.
TOLERANCE = 0.05
#: Largest error relative to the claimed number by which a claim can hold, and largest factor of "another constant".
RESOLVED, FACTOR = 0.25, 3.0
#: How the statement begins in the row of a part that failed.
FAILED = "failed: "
#: Points of a claim's curve in the dataset.
POINTS = 24
NAN = float("nan")


class ClaimCurve(NamedTuple):
    """Points (N,), (N,) that a number is read off, their names, and whether it is a slope of ln y over ln x."""

    axes: str
    x: Array
    y: Array
    is_slope: bool = True


class Claim(NamedTuple):
    """A claim, its number as measured with the standard error (NaN if exact), and as the paper has it."""

    statement: str
    measured: float
    error: float
    claimed: float
    #: The measured number must not be above a bound, nor below a floor; no constant repairs a printed number.
    kind: Kind = "exponent"
    curve: ClaimCurve | None = None
    #: Relative distance from the claimed number that counts as none.
    tolerance: float = TOLERANCE
    #: Whether the number follows from the way it is measured, so that it cannot tell whether the claim is true.
    is_identity: bool = False

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`."""
        if not np.isfinite(self.measured):
            return UNMEASURED
        scale, two_errors = abs(self.claimed) or 1.0, 0.0 if np.isnan(self.error) else 2.0 * self.error
        above = self.measured - self.claimed
        if two_errors > 2.0 * RESOLVED * scale and abs(above) <= two_errors:
            return UNRESOLVED
        distance = {"bound": above, "floor": -above}.get(self.kind, abs(above))
        if distance <= max(two_errors, self.tolerance * scale):
            return IDENTITY if self.is_identity else HOLDS
        if self.kind == "printed":
            return MISPRINTED
        is_near = self.claimed != 0.0 and 1.0 / FACTOR <= self.measured / self.claimed <= FACTOR
        return CONSTANT if self.kind == "constant" and is_near else SIZE


# --- parts: each returns claims by name -------------------------------------------------------------------------------

Claims = Mapping[str, Claim]
#: Law of `scaling_study` -> what the paper says of it.
SCALING = {
    "loss-time": "the loss falls in flow time as t^((1-2 beta)/beta)",
    "loss-samples": "the loss falls in samples at a fixed step as n^((1-2 beta)/beta)",
    "loss-samples-tuned": "the loss falls in samples at a tuned step as n^((1-2 beta)/(2 beta))",
    "loss-width": "the loss falls in the width as m^(1-2 beta)",
    "loss-compute": "the least loss falls in compute as c^((1-2 beta)/(1+beta))",
    "width-compute": "the best width grows in compute as c^(1/(1+beta))",
    "time-direction": "direction p emerges at T_p ~ p^beta",
    "time-dimension": "emergence times grow as d^(k/2-1)",
}


#: Law -> names of its axes.
EDGE = "compute, least loss"
AXES = {
    "loss-time": "t, loss", "loss-samples": "n, loss", "loss-samples-tuned": "n, loss", "loss-width": "m, loss",
    "loss-compute": EDGE, "width-compute": "compute, best m", "time-direction": "p, time",
    "time-dimension": "d, mean time",
}  # fmt: skip


def _scaling(seed: int) -> Claims:
    """Return the eight laws of one teacher, by matched pairs at P = 1024, four starts."""
    laws, claims = scaling_study(seed=seed, progress=False), {}
    for name, statement in SCALING.items():
        law = laws.sel(law=name)
        value, error, claimed = (float(law[key].sel(source=source)) for key, source in (
            ("exponent", "measured"), ("exponent_error", "measured"), ("exponent", "asymptotic")))  # fmt: skip
        x, runs = law["abscissa"].values, law["ordinate"].sel(curve="measured").values
        inside = (x >= float(law["window_low"])) & (x <= float(law["window_high"]))
        runs = runs[np.isfinite(runs).any(axis=1)]  # a law of fewer runs than others has rows of NaN
        x, y = x[inside], np.exp(np.log(runs[:, inside]).mean(axis=0))
        claims[name] = Claim(statement, value, error, claimed, "exponent", ClaimCurve(AXES[name], x, y))
    return claims


def _frontier(seed: int) -> Claims:
    """Return the exponent of the compute frontier at the sizes of the paper's experiment, and of its limit."""
    answer = frontier(seed=seed, progress=False)
    steps = {"frontier-limit": 0, "frontier-experiment": -1}
    texts = ("of endlessly many directions", "at the paper's P = 1024, m to 2048, beta = 0.8")
    claims, limit = {}, float(answer.attrs["asymptotic"])
    for (name, at), text in zip(steps.items(), texts, strict=True):
        step = answer.isel(source=at)
        x, y = step["abscissa"].values, step["ordinate"].values
        inside = (x >= float(step["edge_low"])) & (x <= float(step["edge_high"]))
        statement = f"the least loss falls in compute as c^((1-2 beta)/(1+beta)), {text}"
        value, error = float(step["exponent"]), float(step["exponent_error"])
        claims[name] = Claim(statement, value, error, limit, "exponent", ClaimCurve(EDGE, x[inside], y[inside]))
    return claims


def _theorem(seed: int) -> Claims:
    """Return the bounds of the theorem on emergence times, at d = 1024, 16 384 and 262 144."""
    answer = theorem_study(seed=seed, progress=False).isel(start=0)
    d, at = answer["dimension"].values.astype(np.float64), {"dimension": -1}
    texts = {
        "delta_b": "from T_p (1 + Delta/4) on the matched neuron has learned its direction, Delta < 1",
        "delta_c": "until T_p (1 - Delta/256) its squared overlap is at most d^(-1/2), Delta < 1",
    }
    claims = {
        f"theorem-{name[-1]}": Claim(
            text,
            float(answer[name].isel(at)),
            NAN,
            1.0,
            "bound",
            ClaimCurve("d, Delta", d, answer[name].values, is_slope=False),
        )
        for name, text in texts.items()
    }
    delta_c = answer["delta_c"].values
    text = "Delta of part (c) falls in the dimension as d^(-(k-2)/4)"
    slope = fit_slope(d, np.log(delta_c)).exponent
    return claims | {"theorem-c-order": Claim(text, slope, NAN, -0.5, "exponent", ClaimCurve("d, Delta", d, delta_c))}


def _decoupling(seed: int) -> Claims:
    """Return how late directions emerge beside matched pairs at P = √d, d = 64, 256 and 1024, six starts."""
    answer = decoupling(seed=seed, progress=False)
    ratio, d = answer["time_ratio"], answer["dimension"].values.astype(np.float64)
    last = ratio.isel(dimension=-1).values
    error = float(last.std(ddof=1) / np.sqrt(last.size))
    text = "directions emerge at the times of pairs alone while P = d^(1/2)"
    curve = ClaimCurve("d, emerged over predicted", d, ratio.mean("start").values, is_slope=False)
    return {"decoupling": Claim(text, float(last.mean()), error, 1.0, "constant", curve)}


def _layerwise(_seed: int) -> Claims:
    """Return how the chance to win a direction falls with its rank, and what that costs layer-wise training."""
    teacher = Teacher.power_law(1024, 1.0)
    p, chance = np.array([256.0, 384.0, 512.0, 724.0, 1024.0]), layerwise_chances(teacher)
    q = -np.log(chance[p.astype(np.int64) - 1])
    m = np.array([16, 32, 64, 128, 256])
    loss, joint = layerwise_loss(teacher, m), np.cumsum(teacher.coefficients[::-1] ** 2)[::-1][m]
    return {
        "layerwise-chance": Claim(
            "a neuron of layer-wise training wins direction p with -ln pi_p ~ p^(2 beta/(2 beta+k-2))",
            fit_slope(p, np.log(q)).exponent, NAN, 0.5, "exponent", ClaimCurve("p, -ln pi_p", p, q)),
        "layerwise-loss": Claim(
            "layer-wise training leaves more loss than one joint phase: their ratio with 256 neurons",
            float(loss[-1] / joint[-1]), NAN, 1.0, "floor",
            ClaimCurve("m, ratio", m.astype(np.float64), loss / joint, is_slope=False), is_identity=True),
    }  # fmt: skip


def _width(seed: int) -> Claims:
    """Return how the width that matches the first directions grows with their number."""
    draws, errors = 200, []
    answer = width_study(tops=(4, 8, 16), draws=draws, seed=seed, progress=False)
    x, y = answer["top"].values.astype(np.float64), answer["neurons"].values
    teacher = Teacher.power_law(256, 1.0)
    for top, *ends in zip(x, answer["matched_chance_low"].values, answer["matched_chance_high"].values, strict=True):
        # The widths at which the share is at either end of its interval of 95 %, which is 2 * 1.96 errors wide.
        low, high = (
            width_for(teacher, top=int(top), chance=min(float(end), 1.0 - 0.5 / draws), draws=draws, seed=seed,
                      progress=False).neurons
            for end in ends
        )  # fmt: skip
        errors.append(np.log(high / low) / (2.0 * 1.96))
    fit = fit_slope(x, np.log(y), np.array(errors))
    text = "m ~ p up to logarithms matches all of the first p directions"
    curve = ClaimCurve("first directions, m", x, y)
    return {"width": Claim(text, fit.exponent, fit.standard_error, 1.0, "bound", curve)}


def _edge(_seed: int) -> Claims:
    """Return how the largest stable step size depends on the number of directions."""
    answer = stability_edges(progress=False)
    x, y = answer["num_directions"].values.astype(np.float64), answer["step_limit"].values
    ratio = float((answer["step_limit"] / answer["step_limit_large_dimension"]).isel(num_directions=-1))
    return {
        "edge": Claim("the largest stable step has no power of P", float(answer.attrs["limit_slope"]), NAN, 0.0,
                      "exponent", ClaimCurve("P, limit of the step", x, y)),
        "edge-formula": Claim("it is 2 g'(1)/(d lambda_max(M diag a)) at d = 4096", ratio, NAN, 1.0, "constant"),
    }  # fmt: skip


def _minimax(_seed: int) -> Claims:
    """Return exponent and constant of the least loss of any method, and of SGD at a tuned step beside it."""
    n = np.geomspace(1e3, 1e6, POINTS)
    loss = minimax_loss(n, 1.0)
    law = "the least loss of n samples is 2 beta/(2 beta-1) n^((1-2 beta)/(2 beta)):"
    return {
        "minimax-exponent": Claim(f"{law} its exponent", fit_slope(n, np.log(loss)).exponent, NAN, -0.5,
                                  "exponent", ClaimCurve("n, loss", n, loss), is_identity=True),
        "minimax-constant": Claim(f"{law} its constant", float(loss[-1] * n[-1] ** 0.5), NAN, 2.0, "constant",
                                  is_identity=True),
    }  # fmt: skip


def _times(seed: int) -> Claims:
    """Return emergence times over their leading order, and the learned share of a slow spectrum."""
    problem = Problem(activation="he4", teacher=Teacher.power_law(64, 1.0), width=192, dimension=4096, seed=seed)
    prediction = predict_emergence(problem)
    ratio = (prediction["predicted_emergence_time"] / prediction["leading_order_time"]).values
    slow = Problem(activation="he4", teacher=Teacher.power_law(65536, 0.3), width=196608, dimension=2**24, seed=seed)
    learned = np.sort(predict_emergence(slow)["predicted_learned_time"].values)
    times = np.geomspace(learned[4096], learned[32768], POINTS)
    lost = predict_emergence(slow, save_at=SaveAt.at(times))["loss"].values
    share = 1.0 - lost
    fit = fit_power_law(times, share)
    return {
        "time-constant": Claim(
            "direction p emerges at 1/(k (k-2) a_p |C_0|^(k-2))", float(np.exp(np.log(ratio).mean())),
            float(np.log(ratio).std(ddof=1) / np.sqrt(ratio.size)), 1.0, "constant",
            ClaimCurve("p, time over 1/(...)", np.arange(1.0, ratio.size + 1.0), ratio, is_slope=False)),
        "slow-spectrum": Claim(
            "for beta = 0.3 the learned share of the loss grows as t^((1-2 beta)/beta)", fit.exponent,
            fit.standard_error, 4.0 / 3.0, "exponent", ClaimCurve("t, learned share", times, share)),
    }  # fmt: skip


def _shares(_seed: int) -> Claims:
    """Return the share of the time to learn that passes before C² = 0.1, of one pair from C₀ = 1/√d."""
    d = np.array([1e2, 1e3, 1e4])
    claims = {}
    for k in (2, 3, 4):
        share = learning_shares(f"he{k}", d**-0.5).search
        text = f"most of the time to learn is the search for the direction: its share at k = {k}, d = 10^4"
        curve = ClaimCurve("d, share", d, share, is_slope=False)
        claims[f"search-k{k}"] = Claim(text, float(share[-1]), NAN, 0.5, "floor", curve)
    return claims


def _gradient(_seed: int) -> Claims:
    """Return the pull of a pair of two links at overlap 0.4 beside the paper's printed sum, and exponents of links."""
    signal = gradient_signal("tanh(z) + 0.3*z^2", "sin(z) + 0.2*z^2", overlap=0.4)
    pull, printed = signal.signal, float(signal.by_degree @ np.arange(signal.by_degree.size))
    largest = max(generative_exponent(f"he{k}").exponent for k in (3, 4, 5, 6))
    return {
        "gradient": Claim("the pull of two links at overlap 0.4 has weights (j+1)^2", pull, NAN, printed, "printed"),
        "generative": Claim("polynomials have a generative exponent of at most 2 (h_3 to h_6)", largest, NAN, 2.0,
                            "bound"),
    }  # fmt: skip


def _surface(_seed: int) -> Claims:
    """Return exponents of both forms fitted to the corollary's surface at β = 0.8."""
    ranks = np.geomspace(4, 512, 8)
    m, n = (axis.ravel() for axis in np.meshgrid(ranks, ranks**0.8))
    table = {"width": m, "samples": n, "loss": np.maximum(m**-0.6, n**-0.75)}
    claims = {}
    for form, text in (("max", "the larger of two power laws"), ("sum", "a sum of two power laws")):
        exponents = fit_surface(table, "max" if form == "max" else "sum", bootstrap=0, progress=False)["fitted"]
        value = float(exponents.sel(parameter="width_exponent"))
        statement = f"fitted by {text}, the corollary's surface has the exponent 2 beta-1 in the width"
        claims[f"surface-{form}"] = Claim(statement, value, NAN, 0.6, "exponent", is_identity=form == "max")
    return claims


def _composition(seed: int) -> Claims:
    """Return the accuracy of the constructed transformers, and the samples of hop 1 beside their bound."""
    answer = composition(seed=seed, progress=False)
    samples = answer["hop_samples"].values
    share = float((samples / answer["hop_bound"].values).max())
    text = f"{samples.min():.0f} to {samples.max():.0f} at eight sizes, the largest share of the bound"
    return {
        "composition": Claim("a transformer of log2 k + 1 layers composes k permutations: least accuracy",
                             float(answer["accuracy"].min()), NAN, 1.0, "floor", tolerance=0.0),
        "hop-samples": Claim(f"hop 1 needs at most k^4 N^6 samples: {text}", share, NAN, 1.0, "bound"),
    }  # fmt: skip


def _sgd(seed: int) -> Claims:
    """Return the power of d in the samples of online SGD until C² = ½, one neuron, k = 3, sixteen runs each."""
    run = find_study(study_path("projected-sgd"))
    k, d, samples = 3, np.array([32.0, 64.0, 128.0, 256.0]), []
    problem = Problem(activation="he3", teacher=Teacher([1.0]), width=1, dimension=32)
    for dimension in d:
        rate, ones = 0.1 * dimension ** (-0.5 * k), np.ones((1, 1))
        overlaps = 2.0 / np.sqrt(dimension) * ones, ones, np.array([1e-4])
        start = replace(problem, dimension=int(dimension), initial_overlaps=overlaps)
        steps = int(6.0 * float(predict_emergence(start)["predicted_emergence_time"][0]) / rate)
        seeds = range(seed, seed + 16)
        answer = cast("xr.Dataset", run(start, learning_rate=rate, steps=steps, seeds=seeds, progress=False))
        samples.append(np.log(uninterrupted(answer)["emergence_time"].values[:, 0] / rate))
    missing = np.mean(~np.isfinite(samples))
    logs = np.array([np.nanmean(values) for values in samples])
    errors = np.array([np.nanstd(values, ddof=1) / np.sqrt(np.isfinite(values).sum()) for values in samples])
    fit = fit_slope(d, logs, errors)
    text = (
        f"online SGD needs d^(k-1) samples at k = 3, at a step of 0.1 d^(-k/2), which sets the power; "
        f"{100.0 * missing:.0f} % of runs did not emerge"
    )
    curve = ClaimCurve("d, samples", d, np.exp(logs))
    return {"sgd-samples": Claim(text, fit.exponent, fit.standard_error, k - 1.0, "exponent", curve, is_identity=True)}


#: Part -> its function and the command whose figure shows it in full, "" for none.
PARTS: dict[str, tuple[Callable[[int], Claims], str]] = {
    "scaling": (_scaling, "laws scaling"),
    "frontier": (_frontier, "laws frontier"),
    "times": (_times, "solve --model decoupled"),
    "theorem": (_theorem, "laws theorem"),
    "decoupling": (_decoupling, "laws decoupling"),
    "shares": (_shares, ""),
    "layerwise": (_layerwise, ""),
    "width": (_width, "laws width"),
    "edge": (_edge, "laws edge"),
    "minimax": (_minimax, "laws methods"),
    "gradient": (_gradient, "exponents"),
    "surface": (_surface, "laws fit"),
    "sgd": (_sgd, "check-study sample-complexity"),
    "composition": (_composition, "laws composition"),
}


# --- the report -------------------------------------------------------------------------------------------------------


def _paper(study: FreeStudy, parts: list[str], seed: int, done: xr.Dataset | None) -> xr.Dataset:
    """Measure all parts that `done` lacks; KeyboardInterrupt if there is no claim when it is interrupted.

    A part that fails has one row, which says why and keeps nothing from being measured: it is tried again on resuming.
    """
    names, columns = list[str](), list[dict[str, object]]()
    if done is not None:
        kept = [at for at, text in enumerate(done["statement"].values.tolist()) if not text.startswith(FAILED)]
        names = [str(done["claim"].values[at]) for at in kept]
        columns = [{key: done[key].values[at] for key in ROW} for at in kept]
    measured_parts = {str(column["part"]) for column in columns}
    left = [part for part in parts if part not in measured_parts]
    with under_way(len(left), study.progress, unit="part") as meter:
        for part in left:
            meter.bar.set_postfix_str(part)
            began, (measure, command) = clock.perf_counter(), PARTS[part]
            try:
                claims = measure(seed)
            except Exception as error:  # a part may fail in any way, and the others are still measured
                reason = " ".join(str(error).split()) or type(error).__name__
                claims = {part: Claim(f"{FAILED}{reason}", NAN, NAN, NAN)}
            of_part = {"part": part, "command": command, "part_seconds": clock.perf_counter() - began}
            names += claims
            columns += [of_part | _row(claim) for claim in claims.values()]
            meter.add(1)
    if not names:
        raise KeyboardInterrupt
    values: Values = {key: ((), np.array([column[key] for column in columns])) for key in ROW}
    return study.dataset(meter, values, {"claim": np.array(names), "point": np.arange(POINTS)}, **study.settings)


#: Variables of a claim in the dataset.
ROW = ("part", "command", "part_seconds", "statement", "measured", "measured_error", "claimed", "claim_kind",
       "claim_verdict", "claim_axes", "claim_is_slope", "claim_x", "claim_y")  # fmt: skip


def _row(claim: Claim) -> dict[str, object]:
    """Return the variables of a claim; of its curve at most `POINTS` points, NaN behind them."""
    x, y = np.full((2, POINTS), np.nan)
    curve = claim.curve or ClaimCurve("", np.empty(0), np.empty(0))
    chosen = np.unique(np.linspace(0, curve.x.size - 1, min(POINTS, curve.x.size)).round().astype(np.int64))
    x[: chosen.size], y[: chosen.size] = curve.x[chosen], curve.y[chosen]
    return {
        "statement": claim.statement, "measured": claim.measured, "measured_error": claim.error,
        "claimed": claim.claimed, "claim_kind": "identity" if claim.is_identity else claim.kind,
        "claim_verdict": claim.verdict, "claim_axes": curve.axes,
        "claim_is_slope": int(curve.is_slope), "claim_x": x, "claim_y": y,
    }  # fmt: skip


def _earlier(resume: xr.Dataset | str | PathLike[str] | None) -> xr.Dataset | None:
    """Return the report that is gone on with; ValueError unless it is one."""
    if isinstance(resume, str | PathLike):
        require(Path(resume).is_file(), f"Argument `resume` must name an existing file, but is {shown(str(resume))}.")
        report: xr.Dataset | None = load_answer(resume)
    else:
        report = resume
    if report is None:
        return None
    check_type("resume", report, xr.Dataset, "a dataset or its path")
    answer = report.attrs.get("answer")
    require(answer == ANSWER, f"Argument `resume` must be a report of laws.paper, but is the answer {answer!r}.")
    return report


def _checked_parts(parts: object) -> list[str]:
    """Return the names of different parts, at least one; ValueError if they are none."""
    is_list = isinstance(parts, Sequence) and not isinstance(parts, str | bytes)
    require(is_list, f"Argument `parts` must be a list of names, but is {shown(parts)}.", TypeError)
    chosen = [str(part) for part in cast("Sequence[object]", parts)]
    for part in chosen:
        require(part in PARTS, not_a_choice("Argument `parts`", part, PARTS))
    is_distinct = len(set(chosen)) == len(chosen) > 0
    require(is_distinct, f"Argument `parts` must name one part or more, each once, but is {shown(chosen)}.")
    return chosen


@study_function  # returns what `run` of the prepared study returns, a dataset
def paper(
    *,
    parts: Sequence[str] | None = None,
    resume: xr.Dataset | str | PathLike[str] | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> FreeStudy:
    """Measure every claim of the founding papers, at sizes that take some minutes in all.

    Claims are those of arXiv:2504.19983 on emergence and scaling laws and of arXiv:2505.23683 on composition.

    Parameters
    ----------
    parts : sequence of str, optional
        Of scaling, frontier, times, theorem, decoupling, shares, layerwise, width, edge, minimax, gradient, surface,
        sgd and composition; all by default.
    resume : Dataset or path, optional
        An interrupted report, whose parts are taken over; it must have the same seed.
    seed : int
        Seed of the first random start of every part.

    Returns
    -------
    Dataset
        By claim: `part`, `statement`, `command`, text; `measured`, `measured_error` (NaN if exact) and `claimed`, the
        number of the paper; `claim_kind`, "exponent", "constant", "bound", "floor", "printed" (a number in the paper
        that no constant repairs) or "identity" (it follows from the way it is measured); `claim_verdict`, "holds",
        "holds with another constant" (by a factor of 3 at most), "not at this size", "does not hold as printed", "true
        by construction", "not resolved" (it agrees, but with an error above a quarter of the claim) or "not measured"
        (a part that failed, whose `statement` says why); the curve `claim_x`, `claim_y` (claim, point) that the
        number is read off, NaN if there is none, `claim_axes`, their names, and `claim_is_slope`, whether the number is
        a slope of its logarithm; and `part_seconds`.

    Examples
    --------
    >>> found = paper(parts=["minimax"], progress=False)
    >>> found.claim.values.tolist(), found.claim_verdict.values.tolist()
    (['minimax-exponent', 'minimax-constant'], ['true by construction', 'true by construction'])
    """
    first, done = checked_integer(seed, "seed", minimum=0), _earlier(resume)
    chosen = list(PARTS) if parts is None else _checked_parts(parts)
    require(
        done is None or int(done.attrs["seed"]) == first,
        f"Argument `resume` must be a report of seed {first}, but has another.",
    )
    work = f"{len(chosen)} parts, some minutes in all; interrupted, it goes on with --resume FILE."
    solve = partial(_paper, parts=chosen, seed=first, done=done)
    return FreeStudy(ANSWER, TITLE, {"seed": first}, Free(ANSWER), progress, solve, work)
