"""Jobs of `feature-emergence compile` for the engines of SGD that Numba compiles."""

from __future__ import annotations

from dynamics.compile import CLASSES, ONE_OVERLAP, SMOOTHED, Job, small_problem
from dynamics.problem.checks import JsonObject


def _runs(
    engine: str,
    *batch_sizes: int,
    learning_rate: float = 1e-4,
    steps: int = 20,
    optimizer: str | None = None,
    **fields: object,
) -> Job:
    """Return a job that takes a few steps of an engine."""

    def simulate() -> None:
        """Take some steps with each size of batches."""
        import sgd_check

        problem = small_problem({"activation": "he3", "dimension": 40, **fields})
        options: JsonObject = {"learning_rate": learning_rate, "steps": steps, "seeds": 2, "engine": engine}
        options["optimizer"] = optimizer
        for batch_size in batch_sizes:
            sgd_check.simulate(problem, **options, batch_size=batch_size, progress=False)

    return simulate


NETWORK = {"activation": "relu", "biases": "trained"}
JOBS: dict[str, Job] = {
    "engine projected": _runs("projected", 1, 3),
    "engine projected, classes": _runs("projected", 1, 3, **CLASSES),
    "engine projected, network": _runs("projected", 1, 3, network=NETWORK),
    "engine projected, frame": _runs(
        "projected", 1, activation="he2", student="stiefel", initial_norm=None, dimension=12
    ),
    "engine projected, momentum": _runs("projected", 1, 3, optimizer="SGD(momentum=0.5)"),
    "engine projected, momentum of networks": _runs("projected", 1, 3, optimizer="SGD(momentum=0.5)", network=NETWORK),
    "engine projected, zeroth order": _runs("projected", 1, optimizer="zeroth-order"),
    "engine projected, zeroth order of networks": _runs("projected", 1, optimizer="zeroth-order", network=NETWORK),
    "engine scalar, zeroth order": _runs(
        "scalar", 1, optimizer="zeroth-order", **(SMOOTHED | {"smoothing": 0.0}), **ONE_OVERLAP
    ),
    "engine scalar": _runs("scalar", 1, 2, **SMOOTHED, **ONE_OVERLAP),
    "engine diffusion": _runs("diffusion", 1, learning_rate=1e-6, steps=1_000_000),
}
