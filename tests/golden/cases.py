"""Small questions of every kind, by name: what the program answers to them is kept in `answers/`.

Everything is asked by public names, so that every version of the program, however its kernels are built, can answer.
"""

from __future__ import annotations

from .experiments import SGD
from .face import FACE
from .flows import FLOWS
from .laws import LAWS, TOKENS, VALUES
from .questions import Case

#: Name -> question, of everything.
CASES: dict[str, Case] = {**FLOWS, **LAWS, **VALUES, **TOKENS, **SGD, **FACE}
