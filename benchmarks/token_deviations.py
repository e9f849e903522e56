"""How far models of tokens leave their reductions where these are not exact: `python -m benchmarks.token_deviations`.

Writes `benchmarks/token_deviations.json`, from which docs/tokens.md and the notes of datasets quote. Times of learning
are those of full models in torch over those of the reduction at the same learning rate, as [least, largest] over seeds
and components unless named otherwise. One part alone: `--part random-starts`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import sgd_check.tokens
from dynamics import tokens
from sgd_check.tokens.simulation import Model, model_of

CPU = torch.device("cpu")
TARGET = Path(__file__).with_suffix(".json")
RECALL = {"relations": 4, "subjects": 32, "answers": 4}
CHAIN = [None, *range(7)]


def mapped(problem: Any, rate: float) -> np.ndarray:
    """Return the times of the reduction under gradient descent."""
    return tokens.solve(problem, None, rate, keep="summary", progress=False).learned_time.values


def passed(model: Model, next_batch: Callable[[], Any], rate: float, end: float, looks: int = 400) -> np.ndarray:
    """Return the times (seeds, components) at which progress is first ½, between looks."""
    steps, before, time = int(end / rate), model.measured()[1].numpy(), 0.0
    found = np.full(before.shape, np.nan)
    for step in range(steps):
        model.step(next_batch(), rate * step, rate)
        if step % max(steps // looks, 1) == 0:
            now, later = model.measured()[1].numpy(), rate * (step + 1)
            fresh = np.isnan(found) & (now >= 0.5)
            share = (0.5 - before) / np.where(now == before, 1.0, now - before)
            found = np.where(fresh, time + share * (later - time), found)
            before, time = now, later
        if np.isfinite(found).all():
            break
    return found


def spread(ratio: np.ndarray) -> list[float]:
    """Return the least and the largest ratio to three digits."""
    return [round(float(np.nanmin(ratio)), 3), round(float(np.nanmax(ratio)), 3)]


def random_starts() -> dict[str, Any]:
    """Measure composition from Gaussian scores, N = 6 and k = 4, batches of 4, η = 0.5, four seeds."""
    problem, rate, seeds, found = tokens.Composition(vocabulary=6, hops=4), 0.5, range(4), {}
    expected = mapped(problem, rate)
    for deviation in (0.1, 0.3):
        model, generator = model_of(problem, seeds, CPU), torch.Generator().manual_seed(5)
        with torch.no_grad():
            for scores in model.parameters:
                scores.normal_(0.0, deviation, generator=generator)

        def batch(model: Model = model, generator: torch.Generator = generator) -> list[torch.Tensor]:
            return [part.reshape(len(seeds), 4, *part.shape[1:]) for part in model.draw(generator, 4 * len(seeds))]

        found[f"sd {deviation}"] = spread(passed(model, batch, rate, 1.3 * expected[-1]) / expected)
    return found


def unbalanced_tables() -> dict[str, Any]:
    """Measure recall with uniform answers, and from Gaussian values, by full gradient descent, eight seeds."""
    problem, rate, found = tokens.FactualRecall(**RECALL), 0.5, {}
    expected, seeds = mapped(problem, rate), range(8)
    generator = torch.Generator().manual_seed(6)
    for name in ("uniform answers", "Gaussian values", "Gaussian values and keys"):
        model = model_of(problem, seeds, CPU)
        x, answers = (part.expand(len(seeds), *part.shape[1:]) for part in model.test)
        if name == "uniform answers":
            drawn = torch.randint(4, answers.shape, generator=generator)
            answers = answers // 4 * 4 + drawn
        model.test = [x, answers]
        with torch.no_grad():
            for parameter in model.parameters[: name.count("values") + name.count("keys")]:
                parameter.mul_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        times = passed(model, lambda x=x, answers=answers: [x, answers], rate, 1.3 * expected[-1])
        found[name] = {each: spread(times[:, at] / expected[at]) for at, each in enumerate(("relation", "subject"))}
    return found


def dirichlet() -> dict[str, Any]:
    """Measure the paper's causal graph, a chain of n = 8 tokens and S = 3 symbols, on batches of 1024 and 4096."""
    found = {}
    for beta in (0.6, 0.3, 0.15):
        problem = tokens.CausalGraph(
            parents=CHAIN, vocabulary=3, second_layer="softmax", beta=beta, transitions="dirichlet"
        )
        flow = mapped(problem, None)
        rate = float(flow[0]) / 60.0
        expected = mapped(problem, rate)
        steps = int(1.35 * expected[-1] / rate)
        runs = sgd_check.tokens.simulate(
            problem, learning_rate=rate, steps=steps, batch_size=1024, seeds=4, progress=False
        )
        rows = (runs.learned_time / expected).mean("seed").values
        found[f"beta {beta}"] = {"range over rows": spread(rows), "rows": rows.round(3).tolist()}
    return found


def muon_on_batches() -> dict[str, Any]:
    """Measure Muon of five groups, λ = 1e-6, η = 0.1, four seeds: mean times over the closed ones, by group."""
    problem = tokens.AssociativeMemory(
        group_sizes=[2, 4, 8, 16, 32], frequency_exponent=1.5, optimizer="spectral", smoothing=1e-6
    )
    found, rate = {}, 0.1
    for batch in (16, 64, 256):
        model, generator = model_of(problem, range(4), CPU), torch.Generator().manual_seed(batch)
        closed = tokens.sampled_times(problem, batch)

        def items(model: Model = model, batch: int = batch, drawn: torch.Generator = generator) -> list[torch.Tensor]:
            return [model.draw(drawn, 4 * batch)[0].reshape(4, batch)]

        ratio = passed(model, items, rate, 1.5 * closed.max()).mean(axis=0) / closed
        found[f"batch {batch}"] = ratio.round(3).tolist()
    return found


def hardest() -> dict[str, Any]:
    """Measure hop 4 alone, N = k = 4, from scores of deviation 0.02, in 1600 steps at η = 1 on batches of 4."""
    model = model_of(tokens.Composition(vocabulary=4, hops=4, data="hardest"), range(4), CPU)
    generator, most = torch.Generator().manual_seed(3), 0.0
    with torch.no_grad():
        for scores in model.parameters:
            scores.normal_(0.0, 0.02, generator=generator)
    for step in range(1600):
        model.step([p.reshape(4, 4, *p.shape[1:]) for p in model.draw(generator, 16)], 0.0, 1.0)
        if step % 100 == 99:
            most = max(most, float(model.measured()[1][:, -1].abs().max()))
    return {"largest progress of hop 4": float(f"{most:.2g}")}


PARTS = {
    "random-starts": random_starts,
    "recall": unbalanced_tables,
    "dirichlet": dirichlet,
    "muon-on-batches": muon_on_batches,
    "hardest": hardest,
}


def main() -> None:
    """Measure, and write what was found after each part."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.token_deviations", description=__doc__.split("\n")[0])
    parser.add_argument("--part", choices=PARTS, help="one part alone")
    parser.add_argument("--output", type=Path, default=TARGET, help="file to write")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = json.loads(options.output.read_text(encoding="utf-8")) if options.output.exists() else {}
    for name in [options.part] if options.part else PARTS:
        found[name] = PARTS[name]()
        print(name, found[name], flush=True)
        options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
