from .methods import check_method as check_method
from .methods import stepper_of as stepper_of
from .stepper import Status as Status
from .stepper import Stepper as Stepper

SCIPY_METHODS: tuple[str, ...]
METHODS: tuple[str, ...]
FLOW_METHODS: tuple[str, ...]
CORRELATION_METHODS: tuple[str, ...]
COMMITTEE_METHODS: tuple[str, ...]
NETWORK_METHODS: tuple[str, ...]
PARTICLE_METHODS: tuple[str, ...]
