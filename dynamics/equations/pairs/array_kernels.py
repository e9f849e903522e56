"""Views of flat work space, and products of matrices; executed before the kernels that use them."""

from dynamics.compiler.products import product
from dynamics.compiler.views import matrix

__all__ = ["matrix", "product"]
