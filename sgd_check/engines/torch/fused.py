"""Launching the Triton kernels of `fused_kernels`: which problems they take, and the stepper made of them.

Imports Triton, and the kernels with it, when something is launched. With the environment variable TRITON_INTERPRET=1
set before, the kernels run on the processor, slowly: that is how they are tested without a CUDA device.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from dynamics.problem import is_homogeneous

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dynamics.problem import Problem
    from hermite import HermiteExpansion

#: Steps whose updates wait for one matrix product; with twice as many the kernel runs out of registers.
STEPS = 16
#: Smallest side of a matrix product in Triton.
LEAST_SIDE = 16
#: Largest m for which the kernel's tensors fit the registers, and largest degree for which its link is unrolled.
LARGEST_WIDTH, LARGEST_DEGREE = 64, 64
#: A program takes four warps below so many neurons, eight otherwise.
WIDE = 33
NAMED_LINKS = ("relu", "tanh", "erf", "gelu")
FILLED_ROWS = 16
COORDINATES_PER_COUNTER = 4


class KernelLink(NamedTuple):
    """A link as the kernels know it: a name, or the coefficients c_j of its Hermite polynomials."""

    name: str
    hermite: tuple[float, ...] = ()


@cache
def triton_version() -> str | None:
    """Return the version of Triton, or None if it is not installed."""
    try:
        return metadata.version("triton")
    except metadata.PackageNotFoundError:
        return None


def kernel_link(expansion: HermiteExpansion) -> KernelLink | None:
    """Return the link for the kernels, or None if they cannot evaluate it as the other engines do."""
    if expansion.is_polynomial:
        c = np.trim_zeros(np.asarray(expansion.coefficients, dtype=np.float64), "b")
        return KernelLink("hermite", tuple(c.tolist())) if 0 < c.size <= LARGEST_DEGREE + 1 else None
    import hermite

    for name in NAMED_LINKS:
        if expansion.expression is not None and expansion.expression == hermite.expand(name).expression:
            return KernelLink(name)
    return None


def fusible(problem: Problem, batch: int, dtype: torch.dtype) -> KernelLink | None:
    """Return the kernels' link if they can run the problem, else None.

    They take single samples per step in single precision, teachers along the first axes, and up to 64 neurons, of
    polynomial links up to degree 64, "relu", "tanh", "erf" and "gelu". Matrix products split every factor into two
    numbers of TF32, which keeps all but the last three bits of single precision.
    """
    fits = batch == 1 and dtype == torch.float32 and problem.width <= LARGEST_WIDTH
    if not fits or problem.teacher.directions is not None or triton_version() is None:
        return None
    return kernel_link(problem.activation)


class FusedStepper:
    """Runs of a problem side by side on a CUDA device, many steps per launch.

    It moves the weights (lanes, m, columns) that it is given, zero from d on.
    """

    kernel = "fused"
    threads = 1

    def __init__(self, problem: Problem, link: KernelLink, weights: torch.Tensor, seeds: Sequence[int]) -> None:
        self._problem, self._link, self._weights = problem, link, weights
        self._teacher = torch.tensor(problem.teacher.coefficients).to(weights)
        self._seeds = torch.tensor(seeds, dtype=torch.int64, device=weights.device)
        self._taken = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Return a context without autograd."""
        with torch.inference_mode():
            yield

    def advance(self, rates: torch.Tensor) -> None:
        """Take one step per learning rate η, shape (steps,)."""
        lanes, width, columns = self._weights.shape
        _kernels().advance[(lanes,)](
            self._weights,
            rates.to(self._weights),
            self._seeds,
            self._teacher,
            self._taken,
            rates.shape[0],
            width,
            self._problem.dimension,
            columns,
            self._teacher.shape[0],
            self._problem.label_noise,
            K=STEPS,
            M=max(LEAST_SIDE, 1 << (width - 1).bit_length()),
            LINK=self._link.name,
            HERMITE=self._link.hermite,
            FREE=not is_homogeneous(self._problem),
            NOISY=self._problem.label_noise > 0,
            PRECISION="tf32x3" if self._weights.dtype == torch.float32 else "ieee",
            num_warps=4 if width < WIDE else 8,
            num_stages=1,
            enable_fp_fusion=True,
        )
        self._taken += rates.shape[0]

    def current(self) -> torch.Tensor:
        """Return the weights, shape (lanes, m, d)."""
        return self._weights[..., : self._problem.dimension]

    def freeze(self, lanes: list[int]) -> None:
        """Turn runs to NaN; the others do not notice."""
        self._weights[lanes] = torch.nan


def fill_normals(seeds: torch.Tensor, first: int, samples: torch.Tensor, noise: torch.Tensor | None) -> None:
    """Write samples from `first` on of seeds (lanes,) to `samples` (lanes, rows, columns), label noise to `noise`."""
    lanes, rows, columns = samples.shape
    kernels = _kernels()
    groups = -(-columns // (COORDINATES_PER_COUNTER * int(kernels.CHUNK.value)))
    kernels.fill[(lanes, -(-rows // FILLED_ROWS), groups)](
        samples,
        samples if noise is None else noise,
        seeds,
        first,
        rows,
        columns,
        columns,
        ROWS=FILLED_ROWS,
        NOISY=noise is not None,
        enable_fp_fusion=True,
    )


def _kernels() -> Any:
    return import_module("sgd_check.engines.torch.fused_kernels")
