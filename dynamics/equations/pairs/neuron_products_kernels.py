"""Products of the rows of neurons with each other and with the teacher's directions."""

from dynamics.kernels.arrays import Integers, Matrix
from dynamics.kernels.jit import kernel
from dynamics.kernels.products import product_until


@kernel
def multiply(left: Matrix, right: Matrix, out: Matrix, sizes: Integers) -> None:
    """Write left · right."""
    product_until(left, right, out, sizes)


@kernel
def pair_products(left: Matrix, right: Matrix, out: Matrix, sizes: Integers) -> None:
    """Write left · rightᵀ."""
    product_until(left, right.T, out, sizes)


@kernel
def project(U: Matrix, teacher: Matrix, C: Matrix, sizes: Integers) -> None:
    """Write C = U θᵀ, or the first columns of U."""
    if teacher.shape[0] > 0:
        pair_products(U, teacher, C, sizes)
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
