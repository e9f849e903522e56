from .__main__ import build_parser as build_parser
from .__main__ import main as main
from .described_problem import build_problem as build_problem
from .mean_field import solve_mean_field as solve_mean_field
from .overlaps import solve_overlaps as solve_overlaps
from .spherical import coupled_problem as coupled_problem
from .step_settings import StepSettings as StepSettings
from .step_settings import make_system as make_system
