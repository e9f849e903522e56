"""What workers have in common that answer points one by one, loaded after `dynamics.study.preload` in the same process.

Points that are answered together make no dataset, and start half a second earlier without.
"""

from __future__ import annotations

import gc
from contextlib import suppress

from dynamics.problem import Problem, Teacher
from dynamics.study.points import answer_point

# A small point imports what is imported late. What goes wrong here goes wrong again in a worker, which says so.
with suppress(Exception):
    problem = Problem(activation="he4", teacher=Teacher.power_law(2, 1.0), width=2, dimension=4)
    answer_point("dynamics.solve.decoupled:predict_emergence", problem, {})
gc.freeze()
