"""Small questions of every kind, by name: what the program answers to them is kept in `answers/`."""

from .experiments import SGD
from .face import FACE
from .flows import FLOWS
from .laws import LAWS, TOKENS, VALUES
from .questions import Case

#: Name -> question, of everything.
CASES: dict[str, Case] = {**FLOWS, **LAWS, **VALUES, **TOKENS, **SGD, **FACE}
