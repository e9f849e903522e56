"""The former place of `PowerLawFit`, by which pickles of earlier versions name it."""

from hermite.deprecation import former_place

__getattr__ = former_place(__name__, {"PowerLawFit": "dynamics.fits"}, since="1.0", until="2.0")
