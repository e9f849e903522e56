"""The one-step moments as a function that Python calls; executed after `step_moments_kernels`."""

from typing import TYPE_CHECKING

from dynamics.compiler.arrays import FloatMatrix, FloatVector, IntVector
from dynamics.compiler.compilation import entry

if TYPE_CHECKING:
    from dynamics.equations.finite_step.step_moments_kernels import step_moments


@entry(
    "void(f8[:,::1], f8[:,::1], f8[::1], f8[:,::1], f8, f8[::1], i8[::1], f8[::1],"
    " f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1])"
)
def evaluate_step_moments(
    R: FloatMatrix,
    S: FloatMatrix,
    a: FloatVector,
    T: FloatMatrix,
    noise: float,
    numbers: FloatVector,
    layout: IntVector,
    work: FloatVector,
    teacher_first: FloatMatrix,
    student_first: FloatMatrix,
    drift_gram: FloatMatrix,
    base: FloatMatrix,
    slope: FloatMatrix,
) -> None:
    """Write the moments of one state; see `step_moments`."""
    step_moments(R, S, a, T, noise, numbers, layout, work, teacher_first, student_first, drift_gram, base, slope)
