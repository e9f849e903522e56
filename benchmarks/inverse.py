r"""Coverage of `dynamics.laws.infer`, on curves that it has not seen: `python -m benchmarks.inverse`.

Curves are of matched pairs, of coupled flows and of projected SGD at shares of `dynamics.learning_rate_limit`, with
β uniform in 0.55 to 1.7, m = 3 P, P given and d not. Every kind has the share of intervals of nominal coverage 0.9
that hold β, bias and root mean square of its error, and the median absolute error of the plain slope: L ∝ t^(−x)
between 0.85 and 0.03 of the plateau, β = 1/(2 − x), infinite from x = 2 on. The kinds with `excess` "none" on SGD show
what happens if its excess loss is left out. The factor 1.3 by which intervals are widened was chosen after curves of
flows and of SGD at 0.05 to 0.45 of the limit with k = 3 had been looked at; k = 4 of SGD alone had not. With `excess`
"runs" the step is that share at β = 1, and known, as is d.
"""

from __future__ import annotations

import argparse
import json
import time as clock
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from tqdm import tqdm

import dynamics
from dynamics.laws.inverse import RUNS, infer
from dynamics.laws.regression import Regression

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

TARGET = Path(__file__).with_suffix(".json")
#: Draws of each inference; the default has more.
DRAWS = 800
DIMENSION_OF_SGD = 64


class Kind(NamedTuple):
    """A kind of curves: of "pairs", "flow" or "sgd" at a share of the limit, and how they are inferred."""

    source: str
    k: int
    directions: int
    share: float
    excess: str
    count: int
    #: How the saved curve is disturbed, "" for not.
    disturbance: str = ""

    @property
    def name(self) -> str:
        share = f", {self.share:g} of the limit" if self.share else ""
        disturbed = f", {self.disturbance}" if self.disturbance else ""
        return f"{self.source}, k = {self.k}, P = {self.directions}{share}, excess {self.excess}{disturbed}"


KINDS = [
    Kind("sgd", 3, 8, 0.3, "free", 200),
    Kind("sgd", 3, 8, 0.05, "free", 200),
    *(Kind("pairs", k, P, 0.0, "none", 200) for k, P in ((3, 16), (4, 32))),
    *(Kind("flow", k, P, 0.0, "none", 200) for k in (3, 4) for P in (16, 32)),
    Kind("sgd", 3, 12, 0.15, "free", 100),
    Kind("sgd", 3, 8, 0.45, "free", 100),
    Kind("flow", 3, 16, 0.0, "free", 200),
    Kind("flow", 4, 32, 0.0, "free", 200),
    Kind("sgd", 3, 8, 0.3, "none", 100),
    Kind("sgd", 4, 8, 0.3, "free", 60),
    Kind("sgd", 3, 8, 0.3, "runs", 60),
    *(Kind("pairs", 4, 16, 0.0, "none", 60, how) for how in ("noise 5 %", "ends at 0.2", "smoothed", "linear times")),
]


def curve(kind: Kind, index: int) -> tuple[float, Array, Array]:
    """Return β, times and losses of curve number `index`."""
    rng = np.random.default_rng([80, kind.k, kind.directions, index, int(1000 * kind.share)])
    P, beta, by_sgd = kind.directions, float(rng.uniform(0.55, 1.7)), kind.source == "sgd"
    d = DIMENSION_OF_SGD if by_sgd else round(float(np.exp(rng.uniform(np.log(4 * P), np.log(64 * P)))))
    problem = dynamics.Problem(
        activation=f"he{kind.k}",
        teacher=dynamics.Teacher.power_law(P, beta),
        width=3 * P,
        dimension=d,
        seed=int(rng.integers(2**31)),
    )
    prediction = dynamics.predict_emergence(problem)
    learned = np.nan_to_num(prediction.predicted_learned_time.values, posinf=np.inf)
    square = problem.teacher.coefficients**2
    order = np.argsort(learned)
    left = 1.0 - np.cumsum(square[order]) / square.sum()
    last = learned[order][int(np.argmax(left < 0.015)) if (left < 0.015).any() else P - 1]
    end = 1.6 * float(last if np.isfinite(last) else learned[np.isfinite(learned)].max())
    first = float(prediction.predicted_emergence_time.values.min()) / 20.0
    if by_sgd:
        from sgd_check.simulations.simulation import simulate

        eta = learning_rate(kind, beta)
        answer = simulate(
            problem, learning_rate=eta, steps=int(end / eta) + 1, seeds=[int(rng.integers(2**31))], engine="projected",
            save_at=dynamics.SaveAt.geometric(max(first, 2.0 * eta), end, 160), progress=False,
        ).isel(seed=0)  # fmt: skip
    elif kind.source == "flow":
        answer = dynamics.solve_overlaps(
            problem, save_at=dynamics.SaveAt.geometric(first, end, 200), keep="summary", method="stiff", rtol=1e-4,
            error_estimate=False, progress=False, on_failure="return",
        )  # fmt: skip
    else:
        answer = dynamics.solve_decoupled(problem, save_at=dynamics.SaveAt.geometric(first, end, 200))
    return beta, answer["time"].values, answer["loss"].values


def learning_rate(kind: Kind, beta: float) -> float:
    """Return the step: a share of the limit of the problem, or of that at β = 1 where draws are runs."""
    teacher = dynamics.Teacher.power_law(kind.directions, 1.0 if kind.excess == "runs" else beta)
    width, link = 3 * kind.directions, f"he{kind.k}"
    problem = dynamics.Problem(activation=link, teacher=teacher, width=width, dimension=DIMENSION_OF_SGD)
    return kind.share * dynamics.learning_rate_limit(problem)


def stored_curve(kind: Kind, index: int, folder: Path | None) -> tuple[float, Array, Array]:
    """Return a curve, from a file in the folder if there is one, where it is kept otherwise."""
    step = "-one-step" if kind.excess == "runs" else ""
    name = f"{kind.source}-k{kind.k}-P{kind.directions}-{kind.share:g}{step}.jsonl"
    path = None if folder is None else folder / name
    lines = path.read_text(encoding="utf-8").splitlines() if path is not None and path.exists() else []
    if index < len(lines):
        entry = json.loads(lines[index])
        return entry["beta"], np.array(entry["t"]), np.array(entry["L"])
    beta, times, losses = curve(kind, index)
    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            entry = {"beta": beta, "t": times.tolist(), "L": losses.tolist()}
            file.write(json.dumps(entry) + "\n")
    return beta, times, losses


def disturbed(kind: Kind, times: Array, losses: Array, index: int) -> tuple[Array, Array]:
    """Return a curve with noise, cut short, averaged over a tenth of its time, or saved at 400 equal times."""
    if kind.disturbance == "noise 5 %":
        losses = losses * np.exp(0.05 * np.random.default_rng([81, index]).standard_normal(losses.size))
    elif kind.disturbance == "ends at 0.2":
        kept = losses >= 0.2 * losses[0]
        times, losses = times[kept], losses[kept]
    elif kind.disturbance == "smoothed":
        losses = np.array([losses[(times > 0.9 * time) & (times <= time)].mean() for time in times])
    elif kind.disturbance == "linear times":
        end = times[losses > 0.02 * losses[0]][-1]
        equal = np.linspace(end / 400.0, end, 400)
        times, losses = equal, np.exp(np.interp(np.log(equal), np.log(times), np.log(losses)))
    return times, losses


def slope_error(beta: float, times: Array, losses: Array) -> float:
    """Return the error of β by the plain slope, inf from x = 2 on."""
    part = (losses < 0.85 * losses[0]) & (losses > 0.03 * losses[0]) & (times > 0.0)
    x = -float(np.polyfit(np.log(times[part]), np.log(losses[part]), 1)[0])
    return 1.0 / (2.0 - x) - beta if x < 2.0 else np.inf


def measure(kind: Kind, folder: Path | None) -> tuple[dict[str, object], list[list[float]]]:
    """Return the numbers of a kind, and β, error, half-width, unit's cover and slope's error of every curve."""
    sample, rows, refused, began = None, [], 0, clock.perf_counter()
    learned: dict[int, Regression] = {}
    given: dict[str, object] = {"draws": DRAWS}
    if kind.excess == "runs":
        given = {"draws": RUNS, "dimension": DIMENSION_OF_SGD, "learning_rate": learning_rate(kind, 1.0)}
    for index in tqdm(range(kind.count), desc=kind.name, mininterval=20.0):
        beta, times, losses = stored_curve(kind, index, folder)
        kept = (times > 0.0) & np.isfinite(losses) & (losses > 0.0)
        times, losses = disturbed(kind, times[kept], losses[kept], index)
        table = {"time": times, "loss": losses}
        try:
            study = infer.prepare(
                table, k=kind.k, directions=kind.directions, width_per_direction=3.0, excess=kind.excess,
                progress=False, **given,
            )  # fmt: skip
        except ValueError:
            refused += 1
            continue
        if sample is None:
            with tqdm(disable=True) as bar:
                sample = study.sample(bar)
        reading = study.readings[0]
        # Curves without noise share the draws of the first that reaches as many levels.
        shared = kind.source != "sgd" and not kind.disturbance and reading.crossing.size in learned
        regression = learned[reading.crossing.size] if shared else study.regression(study.read([reading], sample))
        learned[reading.crossing.size] = regression
        _, found = study.fitted(regression)
        half = 0.5 * (found["beta_high"] - found["beta_low"])
        rows.append(
            [
                beta,
                found["beta"] - beta,
                half,
                found["beta_low"] <= beta <= found["beta_high"],
                slope_error(beta, times, losses),
            ]
        )
    _, error, half, covers, slope = np.array(rows, dtype=float).T
    numbers: dict[str, object] = {
        "curves": len(rows),
        "refused": refused,
        "covers": round(float(covers.mean()), 3),
        "bias": round(float(error.mean()), 3),
        "rms": round(float(np.sqrt(np.mean(error**2))), 3),
        "median half-width": round(float(np.median(half)), 3),
        "median absolute error": round(float(np.median(np.abs(error))), 3),
        "median absolute error of the slope": round(float(np.median(np.abs(slope))), 3),
        "seconds": round((clock.perf_counter() - began) / kind.count, 2),
    }
    return numbers, rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.inverse", description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=TARGET, help="file to write, after every kind")
    parser.add_argument("--curves", type=Path, help="folder where curves are kept")
    parser.add_argument("--kinds", help="numbers of the kinds to measure, such as 0,3 (default: all)")
    options = parser.parse_args()
    chosen = range(len(KINDS)) if options.kinds is None else [int(number) for number in options.kinds.split(",")]
    for number in chosen:
        kind = KINDS[number]
        numbers, rows = measure(kind, options.curves)
        found = json.loads(options.output.read_text(encoding="utf-8")) if options.output.exists() else {}
        found[kind.name] = numbers
        options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        if options.curves is not None:
            (options.curves / f"rows-{number}.json").write_text(json.dumps(rows), encoding="utf-8")
        print(kind.name, json.dumps(numbers), flush=True)


if __name__ == "__main__":
    main()
