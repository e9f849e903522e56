from .methods import check_method as check_method
from .methods import make_stepper as make_stepper
from .methods import stepper_of as stepper_of
from .names import METHODS as METHODS
from .stepper import Status as Status
from .stepper import Stepper as Stepper
