from .chaos import coupled_tracers as coupled_tracers
from .chaos import function_gap as function_gap
from .chaos import width_exponents as width_exponents
from .families import checked_problem as checked_problem
from .transfer import checked_widths as checked_widths
from .transfer import transfer_attributes as transfer_attributes
from .transfer import transfer_values as transfer_values
