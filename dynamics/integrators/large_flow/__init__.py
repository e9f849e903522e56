"""The coupled overlap flow of links with information exponent at least 3, at hundreds to thousands of directions.

An explicit method of order 8 on unit vectors, made non-stiff by treating the few stiff modes apart and cheap by
computing at every stage only what changes fast. What cannot be treated so is said by `reason_against`.
"""

from dynamics.integrators.large_flow.fallback import FallingBack, reason_against
from dynamics.integrators.large_flow.stepper import LargeFlowStepper

__all__ = ["FallingBack", "LargeFlowStepper", "reason_against"]
