"""What a question is, and the problems, times and teachers that many of them share."""

import dataclasses
from functools import partial

from dynamics import Problem, SaveAt, Teacher

#: Numbers that no tolerance of a solver bounds: closed forms and quadratures, and sums of rounding over short runs.
ROUNDING = 1e-9
#: Torch runs its frames, models of tokens and estimators in single precision or through decompositions of matrices.
SINGLE = 1e-5


@dataclasses.dataclass(frozen=True)
class Case:
    """A question.

    ask : function that returns a Dataset, a DataTree, or a mapping of strings to numbers, strings and arrays
    bound : relative error that the answer states or, where a dataset has the attribute `rtol`, at least has
    needs : package without which there is no answer
    """

    ask: object
    bound: float = ROUNDING
    needs: str | None = None


AT = SaveAt.geometric(0.5, 60.0, 6)
SHORT = SaveAt.at([0.0, 0.5, 2.0])
TWO = Teacher([0.8, 0.6])
SKEW = Teacher([1.0, 0.6], directions=[[1.0, 0.0], [0.6, 0.8]])
ONE = Teacher([1.0])


def problem(**changes):
    return Problem(**{"activation": "he4", "teacher": TWO, "width": 4, "dimension": 12, **changes})


def quietly(asked, /, **settings):
    return partial(asked, progress=False, **settings)


HE3 = problem(activation="he3")
