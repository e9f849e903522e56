"""Exact mathematics of Gaussian expansions: functions in the normalised Hermite polynomials h_j = He_j / sqrt(j!).

Names are found on first use, so that `import hermite` loads nothing heavy.
"""

from hermite.unpacked import exported, namesake_of

__getattr__, __dir__, __all__ = exported(__name__, __file__)
__all__.remove("__version__")  # that of a module that imports all names is its own

if _sentence := namesake_of("dynamics"):
    from hermite.text.messages import warn

    warn(_sentence, category=RuntimeWarning)
