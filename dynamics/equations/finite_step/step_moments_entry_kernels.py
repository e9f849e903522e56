"""The one-step moments as a function that Python calls; executed after `step_moments_kernels`."""

from typing import TYPE_CHECKING

from dynamics.compiler.arrays import Integers, Matrix, Vector
from dynamics.compiler.compilation import entry

if TYPE_CHECKING:
    from dynamics.equations.finite_step.step_moments_kernels import step_moments


@entry(
    "void(f8[:,::1], f8[:,::1], f8[::1], f8[:,::1], f8, f8[::1], i8[::1], f8[::1],"
    " f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1])"
)
def evaluate_step_moments(
    R: Matrix,
    S: Matrix,
    a: Vector,
    T: Matrix,
    noise: float,
    numbers: Vector,
    layout: Integers,
    work: Vector,
    teacher_first: Matrix,
    student_first: Matrix,
    drift_gram: Matrix,
    base: Matrix,
    slope: Matrix,
) -> None:
    """Write the moments of one state; see `step_moments`."""
    step_moments(R, S, a, T, noise, numbers, layout, work, teacher_first, student_first, drift_gram, base, slope)
