"""The theory's prediction: emergence of teacher directions in two-layer networks trained on Gaussian data.

Names are found on first use, so that `import dynamics` loads nothing heavy.
"""

from hermite.unpacked import exported

__getattr__, __dir__, __all__ = exported(__name__, __file__)
__all__.remove("__version__")  # that of a module that imports all names is its own
__all__.remove("tokens")  # a package: the names are listed there
