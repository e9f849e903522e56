"""The former place of the answers on linear regression, by which pickles of earlier versions name them."""

from hermite.deprecation import former_place

NAMES = ("FastestRate", "MultiPassRisk", "RegressionRisk", "WeakToStrong", "WeakToStrongRisk")
__getattr__ = former_place(__name__, dict.fromkeys(NAMES, "dynamics.linear_regression"), since="1.0", until="2.0")
