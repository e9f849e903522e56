"""Jobs of `feature-emergence compile` for the engines of SGD that Numba compiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Job = Callable[[], object]


def _runs(engine: str, *batch_sizes: int, learning_rate: float = 1e-4, steps: int = 20, **fields: Any) -> Job:
    """Return a job that takes a few steps of an engine."""

    def simulate() -> None:
        import dynamics
        import sgd_check

        given: dict[str, Any] = {
            "activation": "he3",
            "teacher": dynamics.Teacher([0.8, 0.6]),
            "width": 3,
            "dimension": 40,
        }
        given |= {name: value() if callable(value) else value for name, value in fields.items()}
        for batch_size in batch_sizes:
            sgd_check.simulate(
                dynamics.Problem(**given),
                learning_rate=learning_rate,
                steps=steps,
                seeds=2,
                engine=engine,
                batch_size=batch_size,
                progress=False,
            )

    return simulate


def _classes() -> Any:
    from dynamics import Inputs

    return Inputs([2.0, 0.5], [4, 36])


def _one() -> Any:
    from dynamics import Teacher

    return Teacher([1.0])


def _network() -> Any:
    from dynamics import Student

    return Student(activation="relu", width=3, scale="1/m", rates="mean-field", biases="trained")


_CORRELATION: dict[str, Any] = {
    "student": "spherical",
    "objective": "correlation",
    "smoothing": 1.0,
    "width": 1,
    "teacher": _one,
    "initial_overlaps": ([[0.2]], [[1.0]], [1.0]),
}
JOBS: dict[str, Job] = {
    "engine projected": _runs("projected", 1, 3),
    "engine projected, classes": _runs("projected", 1, 3, inputs=_classes),
    "engine projected, network": _runs("projected", 1, 3, student=_network, activation=None, width=None),
    "engine projected, frame": _runs(
        "projected", 1, activation="he2", student="stiefel", initial_norm=None, dimension=12
    ),
    "engine scalar": _runs("scalar", 1, 2, **_CORRELATION),
    "engine diffusion": _runs("diffusion", 1, learning_rate=1e-6, steps=1_000_000),
}
