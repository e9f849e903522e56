from .conversion import expand as expand
from .expansion import HermiteExpansion as HermiteExpansion
from .exponents.generative import GenerativeExponent as GenerativeExponent
from .exponents.generative import generative_exponent as generative_exponent
from .exponents.generative import label_correlations as label_correlations
from .exponents.leap import Leap as Leap
from .exponents.leap import LeapStep as LeapStep
from .exponents.leap import leap as leap
