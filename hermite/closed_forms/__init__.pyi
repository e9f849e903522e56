from .closed_forms import ClosedForm as ClosedForm
from .closed_forms import ExactSource as ExactSource
from .closed_forms import GivenTerms as GivenTerms
from .closed_forms import Term as Term
