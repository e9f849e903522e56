"""How often the verdict on models of tokens is right: `python -m benchmarks.token_verdicts [NAME …]`.

Holds 100 ensembles of eight runs of each case against the right theory and against wrong ones, and writes how often
each had each verdict to `benchmarks/token_verdicts.json`, from which docs/rewards_and_lengths.md quotes.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import xarray as xr

import sgd_check.tokens
from dynamics import tokens

TARGET = Path(__file__).with_suffix(".json")
ENSEMBLES, RUNS = 100, 8


class Case(NamedTuple):
    """A problem, how its runs are made, and wrong theories: another problem, or a factor of all times."""

    problem: tokens.TokenProblem
    runs: dict[str, Any]
    wrong: dict[str, tokens.TokenProblem | float]


def policy(**fields: Any) -> tokens.PolicyGradient:
    """Return the problem of one action of 16 that is better by 1, with other fields."""
    return tokens.PolicyGradient(**({"group_sizes": [1, 15], "rewards": [1.0, 0.0]} | fields))


ONE_HEAD = tokens.Selection(tokens=8, selected=1, heads=1)
TWO_HEADS = tokens.Selection(tokens=6, selected=2, heads=2, initial_scale=0.5)
TRIGGER = {"symbols": 20, "gaps": [2, 3]}
CHAIN = {"dimension": 3, "examples": 6, "steps": 3, "rate": 0.4, "initial_scale": 0.2}
CASES = {
    "policy gradient": Case(
        policy(),
        {"learning_rate": 0.1, "steps": 240, "batch_size": 256},
        {
            "clock 10 % late": 1.1,
            "a group as one action": policy(group_sizes=[1, 1], initial_logits=[0.0, float(np.log(15.0))]),
            "KL divergence of weight 0.1": policy(objective="kl", kl_weight=0.1),
        },
    ),
    "A*-PO": Case(
        policy(objective="a-star", kl_weight=0.3),
        {"learning_rate": 0.2, "steps": 240, "batch_size": 256},
        {
            "clock 10 % early": 1.0 / 1.1,
            "clock of the KL flow": policy(objective="kl", kl_weight=0.3),
            "weight 10 % larger": policy(objective="a-star", kl_weight=0.33),
        },
    ),
    "GRPO, G = 4": Case(
        policy(objective="grpo", group_samples=4),
        {"learning_rate": 0.05, "steps": 290, "batch_size": 64},
        {
            "G = 5": policy(objective="grpo", group_samples=5),
            "infinite groups": policy(objective="grpo"),
            "deviation of samples, over G - 1": float(np.sqrt(4.0 / 3.0)),
        },
    ),
    "selection": Case(
        ONE_HEAD,
        {"learning_rate": 0.5, "steps": 260, "batch_size": 32},
        {
            "clock 10 % late": 1.1,
            "one token more": replace(ONE_HEAD, tokens=9),
            "read-out settled at once": float(
                tokens.predict(ONE_HEAD)["predicted_learned_time"][0]
                / tokens.solve(ONE_HEAD, keep="summary", progress=False)["learned_time"][0]
            ),
        },
    ),
    "selection, two heads": Case(
        TWO_HEADS,
        {"learning_rate": 0.25, "steps": 260, "batch_size": 64},
        {
            "clock 10 % early": 1.0 / 1.1,
            "one token more": replace(TWO_HEADS, tokens=7),
            "another start": replace(TWO_HEADS, seed=1),
        },
    ),
    "trigger task": Case(
        tokens.TriggerTask(**TRIGGER),
        {"learning_rate": 0.1, "steps": 90, "batch_size": 32},
        {
            "clock 10 % late": 1.1,
            "4 symbols": tokens.TriggerTask(**{**TRIGGER, "symbols": 4}),
            "1.5 triggers": tokens.TriggerTask(**TRIGGER, triggers=1.5),
        },
    ),
    "chain of thought": Case(
        tokens.ChainOfThought(**CHAIN),
        {"learning_rate": 0.05, "steps": 350, "batch_size": 512},
        {
            "clock 10 % early": 1.0 / 1.1,
            "twice as many examples": tokens.ChainOfThought(**{**CHAIN, "examples": 12}),
            "chain of rate 0.36": tokens.ChainOfThought(**{**CHAIN, "rate": 0.36}),
        },
    ),
}


def verdicts(case: Case, ensembles: int) -> dict[str, dict[str, int]]:
    """Return how often each theory had each verdict."""
    rate = case.runs["learning_rate"]
    right = tokens.solve(case.problem, None, rate, keep="summary", progress=False)
    theories = {"right": right}
    for name, wrong in case.wrong.items():
        if isinstance(wrong, tokens.TokenProblem):
            times = tokens.solve(wrong, None, rate, keep="summary", progress=False).learned_time.values
        else:
            times = wrong * right.learned_time.values
        theories[name] = right.assign(learned_time=("component", times))
    half = RUNS // 2 * ensembles
    runs = sgd_check.tokens.simulate(case.problem, **case.runs, seeds=2 * half, device="cpu", progress=False)
    counts: dict[str, Counter[str]] = {name: Counter() for name in theories}
    for first in range(0, half, RUNS // 2):
        chosen = np.arange(first, first + RUNS // 2)
        ensemble: xr.Dataset = runs.isel(seed=np.concatenate([chosen, half + chosen]))
        for name, theory in theories.items():
            counts[name][sgd_check.tokens.compare(theory, ensemble)["comparison"].attrs["verdict"]] += 1
    return {name: dict(count) for name, count in counts.items()}


def main() -> None:
    """Count, and write what was found after each case."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.token_verdicts", description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"cases [all]: {', '.join(CASES)}")
    parser.add_argument("--output", type=Path, default=TARGET, help="file to write")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = json.loads(options.output.read_text(encoding="utf-8")) if options.output.exists() else {}
    for name in options.names or CASES:
        found[name] = verdicts(CASES[name], ENSEMBLES)
        print(name, found[name], flush=True)
        options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
