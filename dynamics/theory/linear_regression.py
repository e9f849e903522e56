"""The former place of the answers on linear regression, by which pickles of earlier versions name them."""

from dynamics.linear_regression import FastestRate, MultiPassRisk, RegressionRisk, WeakToStrong, WeakToStrongRisk

__all__ = ["FastestRate", "MultiPassRisk", "RegressionRisk", "WeakToStrong", "WeakToStrongRisk"]
