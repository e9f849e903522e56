"""Views of flat work space, and products of matrices; executed before the kernels that use them."""

from dynamics.compiler.products import product
from dynamics.compiler.views import cube, matrix

__all__ = ["cube", "matrix", "product"]
