"""The former place of `PowerLawFit`, by which pickles of earlier versions name it."""

from dynamics.fits import PowerLawFit

__all__ = ["PowerLawFit"]
