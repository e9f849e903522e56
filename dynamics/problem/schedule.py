"""The former place of `SaveAt`, by which pickles of earlier versions name it."""

from hermite.deprecation import former_place

__getattr__ = former_place(__name__, {"SaveAt": "dynamics.problem.saved_times"}, since="1.0", until="2.0")
