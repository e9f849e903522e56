"""Place of the scalars in the parameters of the mean field, whose layout `mean_field_kernels` says; executed first."""

from dynamics.compiler.arrays import Integers
from dynamics.compiler.compilation import kernel


@kernel
def scalars_start(sizes: Integers) -> int:
    """Place of the floor in the parameters; d follows, then the weights."""
    M, P = sizes[1], sizes[2]
    return int(2 * M + P * M + P + sizes[3])
