"""What passes of the large-flow solver over rows are told: three tables, the link, and how they multiply few rows.

plan[0] (3, m)      ORDER      rows, in the order in which they are visited, the fast sources first
                    CLUSTER    number of the cluster of each row, no direction; −1 for none
                    POLE       +1 or −1: the pole of its direction at which a row of a cluster sits
plan[1] (2, c + 1)  FIRST      place in ORDER at which each cluster begins, and at which the last one ends
                    DIRECTION  direction of each cluster; the last number means nothing
plan[2] (2, P)      ACTIVE     a_p of the directions without a cluster, 0 for the others
                    TEACHER    a_p of every direction
plan[LINK]                     data of g (`dynamics.equations.pairs.link`); g(0) = g'(0) = 0
plan[BY_BLAS]                  whether BLAS multiplies blocks of a few rows, or loops (`few_rows_kernels`)
"""

from typing import Final

from dynamics.kernels.arrays import Integers, Matrix, Vector

# Tables rather than arrays: for each array that a function is given the compiler carries seven numbers.
Plan = tuple[Integers, Integers, Matrix, Vector, bool]
LINK: Final = 3
BY_BLAS: Final = 4
ORDER, CLUSTER, POLE = 0, 1, 2
FIRST, DIRECTION = 0, 1
ACTIVE, TEACHER = 0, 1
