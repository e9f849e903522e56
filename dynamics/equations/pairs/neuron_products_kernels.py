"""Products of the rows of neurons with each other and with the teacher's directions; executed after `array_kernels`."""

from typing import TYPE_CHECKING

from dynamics.compiler.arrays import Matrix
from dynamics.compiler.compilation import kernel

if TYPE_CHECKING:
    from dynamics.equations.pairs.array_kernels import product


@kernel
def multiply(left: Matrix, right: Matrix, out: Matrix) -> None:
    """Write left · right; one compiled function, because every inlined BLAS call costs compile time."""
    product(left, right, out)


@kernel
def pair_products(left: Matrix, right: Matrix, out: Matrix) -> None:
    """Write left · rightᵀ."""
    product(left, right.T, out)


@kernel
def project(U: Matrix, teacher: Matrix, C: Matrix) -> None:
    """Write C = U θᵀ, or the first columns of U."""
    if teacher.shape[0] > 0:
        pair_products(U, teacher, C)
    else:
        for i in range(U.shape[0]):
            for p in range(C.shape[1]):
                C[i, p] = U[i, p]


@kernel
def add_pull(A: Matrix, teacher: Matrix, F: Matrix) -> None:
    """Add A θ to F, or A to its first columns."""
    for i in range(F.shape[0]):
        if teacher.shape[0] == 0:
            for p in range(A.shape[1]):
                F[i, p] += A[i, p]
        for p in range(teacher.shape[0]):
            for k in range(F.shape[1]):
                F[i, k] += A[i, p] * teacher[p, k]
