"""Draws of an associative memory with Gaussian embeddings: one step of the optimizer, and what it recovers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy import special, stats

from dynamics.problem import stored_question
from dynamics.runs import make_dataset
from dynamics.tokens import TOKEN_VARIABLES, rank_bins
from sgd_check.tokens.memory import smooth_signs

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr

    from dynamics.tokens import AssociativeMemory
    from hermite.arrays import Array

#: Relative error of the closed count that is not held against theory, and one that an agreement must have been able to
#: see, with probability 0.8.
TOLERATED, VISIBLE_ERROR, POWER = 0.06, 0.2, 0.8
#: Scores that are held at once.
SCORES_AT_ONCE = 2**24


def draw_recovery(problem: AssociativeMemory, seeds: Sequence[int], device: torch.device) -> xr.Dataset:
    """Return which share of every rank is recovered, and how many items, in one draw of embeddings per seed."""
    ranks, counts = rank_bins(problem.count)
    edges = np.concatenate([[0.0], np.cumsum(counts)[:-1]]).astype(np.intp)
    flags = np.array([_recovered(problem, seed, device) for seed in seeds])
    return make_dataset(
        {
            "recovery": np.add.reduceat(flags, edges, axis=1) / counts,
            "rank_count": counts,
            "recovered_count": flags.sum(axis=1),
        },
        problem=problem,
        title="Draws of an associative memory with Gaussian embeddings after one step",
        coords={"rank": ranks, "seed": list(seeds)},
        solver={"answer": "simulation", "seeds": len(seeds), "first_seed": seeds[0]},
        attributes={"answer": "simulation", "theory": "tokens", "stop_reason": "reached_end", "device": str(device)},
        leading=("seed",),
        with_leading=("recovery", "recovered_count"),
        variables=TOKEN_VARIABLES,
    )


def _recovered(problem: AssociativeMemory, seed: int, device: torch.device) -> Array:
    """Return 1 for every item whose own output has the largest score after one step, else 0, by rank."""
    N, d = problem.count, problem.dimension or 0
    generator = torch.Generator().manual_seed(seed)
    E, U = (torch.randn(N, d, generator=generator, dtype=torch.float64).to(device) / d**0.5 for _ in range(2))
    p = torch.arange(1.0, N + 1.0, dtype=torch.float64, device=device) ** -(problem.frequency_exponent or 0.0)
    W = ((U - U.mean(dim=0)) * (p / p.sum())[:, None]).T @ E
    if problem.smoothing is not None:
        W = smooth_signs(W, problem.smoothing)
    moved, rows = E @ W.T, max(1, SCORES_AT_ONCE // N)
    best = torch.cat([(moved[at : at + rows] @ U.T).argmax(dim=1) for at in range(0, N, rows)])
    return np.asarray((best == torch.arange(N, device=device)).cpu().numpy(), dtype=np.float64)


def compare_recovery(prediction: xr.Dataset, simulation: xr.Dataset, rate: float) -> xr.DataTree:
    """Hold the mean number of recovered items against the closed one, by Student's t of what is beyond 6 %."""
    import xarray as xr

    problem: Any = stored_question(prediction)
    closed, counts = float(prediction["recovered_count"]), simulation["recovered_count"].values
    freedom = counts.size - 1
    ratio = float(counts.mean()) / closed - 1.0
    error = max(float(counts.std(ddof=1)) / np.sqrt(counts.size) / closed, 1e-12)
    p_value = float(2.0 * stats.t.sf(max(abs(ratio) - TOLERATED, 0.0) / error, freedom))
    reach = special.stdtrit(freedom, 1.0 - rate / 2.0) + special.stdtrit(freedom, POWER)
    visible = TOLERATED + float(reach) * error
    said = f"{counts.mean():.4g} items are recovered, {closed:.4g} predicted"
    if p_value < rate:
        verdict, end = "disagree", f" (p = {p_value:.2g} < {rate:g})"
    elif visible > VISIBLE_ERROR:
        verdict, end = "undecided", f"; an error of {100 * VISIBLE_ERROR:.0f} % could have gone unseen: use more seeds"
    else:
        verdict, end = (
            "agree",
            f" (p = {min(p_value, 1.0):.2g}), and an error of {100 * VISIBLE_ERROR:.0f} % would have been seen",
        )
    comparison = make_dataset(
        {},
        problem=problem,
        title="Recovered items against theory",
        coords={},
        solver={"answer": "comparison", "false_alarm_rate": rate},
        attributes={
            "answer": "comparison",
            "theory": "tokens",
            "verdict": verdict,
            "reasons": f"{said}{end}.",
            "false_alarm_rate": rate,
            "usable_runs": counts.size,
            "blown_up_count": 0,
            "p_value": min(p_value, 1.0),
            "relative_distance": ratio,
            "relative_error": error,
            "visible_error": visible,
        },
    )
    return xr.DataTree.from_dict({"/prediction": prediction, "/simulation": simulation, "/comparison": comparison})
