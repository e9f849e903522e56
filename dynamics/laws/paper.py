r"""Every claim of the founding paper and its companions in one report: what each says, and what is measured here.

A part measures one or several claims by the studies of this room, at sizes that take minutes in all. A claim holds
where its number agrees within two errors or 5 %. A constant that differs "holds with another constant", since the
papers claim orders; an exponent or bound that differs holds "not at this size".
"""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import xarray as xr

from dynamics.commands.catalogue import study_function
from dynamics.fits import fit_power_law, fit_slope
from dynamics.laws.composition import composition
from dynamics.laws.decoupling import decoupling
from dynamics.laws.edges import stability_edges
from dynamics.laws.frontier import frontier
from dynamics.laws.layerwise import layerwise_chances, layerwise_loss, width_study
from dynamics.laws.methods import minimax_loss
from dynamics.laws.scaffold import FreeStudy, under_way
from dynamics.laws.scaling import scaling_study
from dynamics.laws.surface import fit_surface
from dynamics.laws.theorem import theorem_study
from dynamics.problem import Problem, Teacher
from dynamics.problem.checks import check_type, checked_integer, checked_list, require
from dynamics.problem.saved_times import SaveAt
from dynamics.runs.dataset import Values
from dynamics.runs.storage import load_answer
from dynamics.solve.decoupled import predict_emergence
from dynamics.sweeps.points import find_study, study_path
from hermite import expand
from hermite.arrays import Array
from hermite.exponents.generative import generative_exponent
from hermite.text.messages import not_a_choice

Kind = Literal["exponent", "constant", "bound", "floor"]
ANSWER, TITLE = "paper", "Claims of the founding papers, each measured"
VERDICTS = ("holds", "holds with another constant", "not at this size")
#: Relative distance from a claimed number that counts as none, and the same of a slope that is to be 0.
TOLERANCE = 0.05
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
    #: The measured number must not be above a bound, nor below a floor.
    kind: Kind = "exponent"
    curve: ClaimCurve | None = None

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`."""
        allowed = max(2.0 * np.nan_to_num(self.error), TOLERANCE * (abs(self.claimed) or 1.0))
        above = self.measured - self.claimed
        distance = {"bound": above, "floor": -above}.get(self.kind, abs(above))
        if distance <= allowed:
            return VERDICTS[0]
        return VERDICTS[1 if self.kind == "constant" else 2]


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
    drop = fit_slope(d, np.log(answer["delta_c_leading_order"].values)).exponent
    text = "Delta of part (c) falls in the dimension as d^(-(k-2)/4)"
    return claims | {
        "theorem-c-order": Claim(
            text, drop, NAN, -0.5, "exponent", ClaimCurve("d, Delta", d, answer["delta_c_leading_order"].values)
        )
    }


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
            ClaimCurve("m, ratio", m.astype(np.float64), loss / joint, is_slope=False)),
    }  # fmt: skip


def _width(seed: int) -> Claims:
    """Return how the width that matches the first directions grows with their number."""
    answer = width_study(tops=(4, 8, 16), draws=200, seed=seed, progress=False)
    text = "m ~ p up to logarithms matches all of the first p directions"
    x, y = answer["top"].values.astype(np.float64), answer["neurons"].values
    return {
        "width": Claim(
            text, float(answer.attrs["width_slope"]), 0.12, 1.0, "bound", ClaimCurve("first directions, m", x, y)
        )
    }


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
                                  "exponent", ClaimCurve("n, loss", n, loss)),
        "minimax-constant": Claim(f"{law} its constant", float(loss[-1] * n[-1] ** 0.5), NAN, 2.0, "constant"),
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
        share = np.array([_search_share(k, dimension) for dimension in d])
        text = f"most of the time to learn is the search for the direction: its share at k = {k}, d = 10^4"
        curve = ClaimCurve("d, share", d, share, is_slope=False)
        claims[f"search-k{k}"] = Claim(text, float(share[-1]), NAN, 0.5, "floor", curve)
    return claims


def _search_share(k: int, dimension: float) -> float:
    """Return the time to C² = 0.1 over that until the norm is half learned, of h_k from C₀ = 1/√d and n = 10⁻⁴."""
    from scipy.integrate import solve_ivp

    def motion(_time: float, state: Array) -> Array:
        C = state[0]
        return np.array([k * C ** (k - 1) * (1.0 - C**2), 4.0 * (C**k - np.exp(state[1]))])

    def emerged(_time: float, state: Array) -> float:
        return float(state[0] ** 2 - 0.1)

    def learned(_time: float, state: Array) -> float:
        return float(np.exp(state[1]) * state[0] ** k - 0.5)

    learned.terminal = True  # type: ignore[attr-defined]
    start = np.array([dimension**-0.5, np.log(1e-4)])
    end: Any = solve_ivp(motion, (0.0, 1e9), start, method="LSODA", events=(emerged, learned), rtol=1e-9, atol=1e-12)
    return float(end.t_events[0][0] / end.t_events[1][0])


def _gradient(_seed: int) -> Claims:
    """Return the pull of a pair of two links at overlap 0.4 beside the paper's printed sum, and exponents of links."""
    student, teacher = expand("tanh(z) + 0.3*z^2"), expand("sin(z) + 0.2*z^2")
    count, s = min(student.coefficients.size, teacher.coefficients.size), 0.4
    product, j = student.coefficients[:count] * teacher.coefficients[:count], np.arange(count, dtype=np.float64)
    pull, printed = (float(np.sum(j[1:] ** power * product[1:] * s ** (j[1:] - 1.0))) for power in (1, 2))
    largest = max(generative_exponent(f"he{k}").exponent for k in (3, 4, 5, 6))
    return {
        "gradient": Claim("the pull of two links at overlap 0.4 has weights (j+1)^2", pull, NAN, printed, "constant"),
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
        claims[f"surface-{form}"] = Claim(statement, value, NAN, 0.6, "exponent")
    return claims


def _composition(seed: int) -> Claims:
    """Return the accuracy of the constructed transformers, and the slopes of the samples of hop 1."""
    answer = composition(seed=seed, progress=False)
    n, along_k = answer["hop_samples"].values, answer["vocabulary"].values == 8.0
    x = {"vocabulary": answer["vocabulary"].values, "hops": answer["hops"].values}
    kept = {"vocabulary": x["hops"] == 4.0, "hops": along_k}
    claims = {
        "composition": Claim("a transformer of log2 k + 1 layers composes k permutations: least accuracy",
                             float(answer["accuracy"].min()), NAN, 1.0, "constant"),
    }  # fmt: skip
    for name, symbol, bound in (("vocabulary", "N", 6.0), ("hops", "k", 4.0)):
        order = np.argsort(x[name][kept[name]])
        text = f"hop 1 needs at most k^4 N^6 samples: slope in {symbol}"
        curve = ClaimCurve(f"{symbol}, samples", x[name][kept[name]][order], n[kept[name]][order])
        claims[f"hop-{name}"] = Claim(text, float(answer.attrs[f"{name}_slope"]), NAN, bound, "bound", curve)
    return claims


def _sgd(seed: int) -> Claims:
    """Return the power of d in the samples of online SGD until C² = ½, one neuron, k = 3, sixteen runs each."""
    run = find_study(study_path("projected-sgd"))
    k, d, samples = 3, np.array([32.0, 64.0, 128.0, 256.0]), []
    problem = Problem(activation="he3", teacher=Teacher([1.0]), width=1, dimension=32, seed=seed)
    for dimension in d:
        rate, ones = 0.1 * dimension ** (-0.5 * k), np.ones((1, 1))
        overlaps = 2.0 / np.sqrt(dimension) * ones, ones, np.array([1e-4])
        start = replace(problem, dimension=int(dimension), initial_overlaps=overlaps)
        steps = int(6.0 * float(predict_emergence(start)["predicted_emergence_time"][0]) / rate)
        runs = cast("xr.Dataset", run(start, learning_rate=rate, steps=steps, seeds=16, progress=False))
        samples.append(np.log(runs["emergence_time"].values[:, 0] / rate))
    logs = np.array([np.nanmean(values) for values in samples])
    errors = np.array([np.nanstd(values, ddof=1) / np.sqrt(np.isfinite(values).sum()) for values in samples])
    fit = fit_slope(d, logs, errors)
    text = "online SGD needs d^(k-1) samples at k = 3"
    return {
        "sgd-samples": Claim(
            text, fit.exponent, fit.standard_error, k - 1.0, "exponent", ClaimCurve("d, samples", d, np.exp(logs))
        )
    }


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
    """Measure all parts that `done` lacks; KeyboardInterrupt if there is no claim when it is interrupted."""
    measured_parts = [] if done is None else done["part"].values.tolist()
    left = [part for part in parts if part not in measured_parts]
    names, columns = list[str](), list[dict[str, object]]()
    with under_way(len(left), study.progress, unit="part") as meter:
        for part in left:
            meter.bar.set_postfix_str(part)
            began, (measure, command) = clock.perf_counter(), PARTS[part]
            claims = measure(seed)
            of_part = {"part": part, "command": command, "part_seconds": clock.perf_counter() - began}
            names += claims
            columns += [of_part | _row(claim) for claim in claims.values()]
            meter.add(1)
    if done is not None:
        names = [*map(str, done["claim"].values), *names]
        columns = [{key: done[key].values[at] for key in ROW} for at in range(done["claim"].size)] + columns
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
        "claimed": claim.claimed, "claim_kind": claim.kind, "claim_verdict": claim.verdict, "claim_axes": curve.axes,
        "claim_is_slope": int(curve.is_slope), "claim_x": x, "claim_y": y,
    }  # fmt: skip


def _earlier(resume: xr.Dataset | str | PathLike[str] | None) -> xr.Dataset | None:
    """Return the report that is gone on with; ValueError unless it is one."""
    report = load_answer(resume) if isinstance(resume, str | PathLike) else resume
    if report is None:
        return None
    check_type("resume", report, xr.Dataset, "a dataset or its path")
    answer = report.attrs.get("answer")
    require(answer == ANSWER, f"Argument `resume` must be a report of laws.paper, but is the answer {answer!r}.")
    return report


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
        number of the paper; `claim_kind`, "exponent", "constant", "bound" or "floor"; `claim_verdict`, "holds",
        "holds with another constant" or "not at this size"; the curve `claim_x`, `claim_y` (claim, point) that the
        number is read off, NaN if there is none, `claim_axes`, their names, and `claim_is_slope`, whether the number is
        a slope of its logarithm; and `part_seconds`.

    Examples
    --------
    >>> found = paper(parts=["minimax"], progress=False)
    >>> found.claim.values.tolist(), found.claim_verdict.values.tolist()
    (['minimax-exponent', 'minimax-constant'], ['holds', 'holds'])
    """
    first, done = checked_integer(seed, "seed", minimum=0), _earlier(resume)
    chosen = list(PARTS) if parts is None else [str(part) for part in checked_list(parts, "parts")]
    for part in chosen:
        require(part in PARTS, not_a_choice("Argument `parts`", part, PARTS))
    require(
        done is None or int(done.attrs["seed"]) == first,
        f"Argument `resume` must be a report of seed {first}, but has another.",
    )
    work = f"{len(chosen)} parts, some minutes in all; interrupted, it goes on with --resume FILE."
    solve = partial(_paper, parts=chosen, seed=first, done=done)
    return FreeStudy(ANSWER, TITLE, {"seed": first}, progress, solve, work)
