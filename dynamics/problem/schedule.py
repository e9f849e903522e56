"""The former place of `SaveAt`, by which pickles of earlier versions name it."""

from dynamics.problem.saved_times import SaveAt

__all__ = ["SaveAt"]
