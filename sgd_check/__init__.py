"""The experiment: online SGD on sampled data, held against the theory's prediction.

Names are found on first use, so that `import sgd_check` loads neither torch nor xarray.
"""

from hermite.unpacked import exported, namesake_of

if _sentence := namesake_of("dynamics"):
    raise ImportError(_sentence, name="dynamics")

__getattr__, __dir__, __all__ = exported(__name__, __file__)
__all__.remove("__version__")  # that of a module that imports all names is its own
__all__.remove("tokens")  # a package: the names are listed there
