"""Methods that carry a state forward in time: steps, error control, dense output and the location of events."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

# The names of the methods, for menus: nothing is imported to know them.
SCIPY_METHODS = ("RK45", "RK23", "DOP853", "Radau", "BDF", "LSODA")
#: Methods for any system.
METHODS = ("explicit", "bdf", "sundials", *(f"scipy:{name}" for name in SCIPY_METHODS))
#: Methods of the coupled overlap flow: "stiff" and "gradient-descent" are its own. "map" takes every step of momentum.
FLOW_METHODS = ("auto", "explicit", "stiff", *METHODS[1:], "gradient-descent", "map")
#: Methods of the smoothed correlation flow.
CORRELATION_METHODS = ("auto", *METHODS)
#: Methods of a committee.
COMMITTEE_METHODS = (*CORRELATION_METHODS, "map")
#: Methods of a two-layer network.
NETWORK_METHODS = (*CORRELATION_METHODS, "gradient-descent", "map")
#: Methods of particles and of spherical neurons: their rates spread less than those of overlaps.
PARTICLE_METHODS = ("explicit", "scipy:RK45", "scipy:RK23", "scipy:DOP853", "scipy:LSODA")
