"""Methods that carry a state forward in time.

Responsible for: steps, error control, dense output and the location of events.  Must not know what the state means:
a method sees arrays and the compiled functions named in `dynamics.equations.interface`.
"""

from dynamics.integrators.methods import METHODS, check_method, load_method, make_stepper, stepper_of
from dynamics.integrators.stepper import Status, Stepper

__all__ = ["METHODS", "Status", "Stepper", "check_method", "load_method", "make_stepper", "stepper_of"]
