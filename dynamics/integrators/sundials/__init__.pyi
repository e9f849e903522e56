from .stepper import SundialsStepper as SundialsStepper
from .stepper import check_installed as check_installed
