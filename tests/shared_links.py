"""The link of mixed parity that tests of flows share: every other polynomial is another text, which takes seconds to compile.

Others are for tests of a link of their own, such as those of its rendered kernels, of low exponents, or of cut series.
"""

MIXED = {3: 0.7, 4: 0.7}
