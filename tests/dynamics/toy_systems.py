"""Small systems with known solutions, written as source pieces for the compiled steppers."""

from dynamics.compiler.compilation import Piece

NO_EVENTS = """
@kernel
def event_values(t, y, out, parameters, sizes, work):
    pass
"""

NO_CONSTRAINT = """
@kernel
def normalise(y, parameters, sizes):
    pass
"""


def toy(text, *, events=NO_EVENTS, constraint=NO_CONSTRAINT):
    """The pieces of a system from the source of its right-hand side and Jacobian."""
    head = "import numpy as np\n\nfrom dynamics.compiler.compilation import kernel\n"
    return (Piece("toy system", head + events + constraint + text),)


# y = (cos ωt, sin ωt) from (1, 0), ω = parameters[0].
ROTATION = """
@kernel
def rhs(t, y, out, parameters, sizes, work):
    out[0] = -parameters[0] * y[1]
    out[1] = parameters[0] * y[0]

@kernel
def jacobian_diagonal(t, y, out, parameters, sizes, work):
    out[0] = 0.0
    out[1] = 0.0
"""

# sin ωt reaches ½ at ωt = π/6 and again one turn later; cos ωt >= 0 holds at the start; cos ωt >= ½ is lost and
# regained; the last one never happens.
ROTATION_EVENTS = """
@kernel
def event_values(t, y, out, parameters, sizes, work):
    out[0] = y[1] - 0.5
    out[1] = y[0]
    out[2] = -y[0]
    out[3] = -2.0 + y[0]
"""

# A state that must stay on the unit circle.
UNIT_CIRCLE = """
@kernel
def normalise(y, parameters, sizes):
    length = np.sqrt(y[0] * y[0] + y[1] * y[1])
    y[0] /= length
    y[1] /= length
"""

# Prothero and Robinson: y' = -λ (y - cos t) - sin t, solution cos t from 1, λ = parameters[0].
PROTHERO_ROBINSON = """
@kernel
def rhs(t, y, out, parameters, sizes, work):
    out[0] = -parameters[0] * (y[0] - np.cos(t)) - np.sin(t)

@kernel
def jacobian_diagonal(t, y, out, parameters, sizes, work):
    out[0] = -parameters[0]
"""

# y_1' = y_2, y_2' = μ (1 - y_1²) y_2 - y_1, μ = parameters[0].
VAN_DER_POL = """
@kernel
def rhs(t, y, out, parameters, sizes, work):
    out[0] = y[1]
    out[1] = parameters[0] * (1.0 - y[0] * y[0]) * y[1] - y[0]

@kernel
def jacobian_diagonal(t, y, out, parameters, sizes, work):
    out[0] = 0.0
    out[1] = parameters[0] * (1.0 - y[0] * y[0])
"""

# Heat equation on n inner points of (0, 1), zero at the ends: y_i' = (n+1)² (y_{i-1} - 2 y_i + y_{i+1}).
DIFFUSION = """
@kernel
def rhs(t, y, out, parameters, sizes, work):
    n = y.size
    scale = (n + 1.0) ** 2
    for i in range(n):
        left = y[i - 1] if i > 0 else 0.0
        right = y[i + 1] if i < n - 1 else 0.0
        out[i] = scale * (left - 2.0 * y[i] + right)

@kernel
def jacobian_diagonal(t, y, out, parameters, sizes, work):
    for i in range(y.size):
        out[i] = -2.0 * (y.size + 1.0) ** 2
"""

# Escapes from 0 one after the other, each followed by fast relaxation: y_i' = a_i (y_i² - y_i³), y_i → 1, like
# directions that emerge.  Exact: t = (1/a)[1/u - 1/y + ln(y/(1-y)) - ln(u/(1-u))] from y = u.  Event i: y_i >= ½.
ESCAPES = """
@kernel
def rhs(t, y, out, parameters, sizes, work):
    for i in range(y.size):
        out[i] = parameters[i] * y[i] * y[i] * (1.0 - y[i])

@kernel
def jacobian_diagonal(t, y, out, parameters, sizes, work):
    for i in range(y.size):
        out[i] = parameters[i] * y[i] * (2.0 - 3.0 * y[i])
"""
ESCAPES_EVENTS = """
@kernel
def event_values(t, y, out, parameters, sizes, work):
    for i in range(y.size):
        out[i] = y[i] - 0.5
"""

# y' = y², y = 1/(1 - t): infinite at t = 1.
BLOW_UP = """
@kernel
def rhs(t, y, out, parameters, sizes, work):
    out[0] = y[0] * y[0]

@kernel
def jacobian_diagonal(t, y, out, parameters, sizes, work):
    out[0] = 2.0 * y[0]
"""

# y' = -√y - 0.01, not a number below 0, which the solution reaches before t = 2.
NOT_A_NUMBER = """
@kernel
def rhs(t, y, out, parameters, sizes, work):
    out[0] = -np.sqrt(y[0]) - 0.01 if y[0] >= 0.0 else np.nan

@kernel
def jacobian_diagonal(t, y, out, parameters, sizes, work):
    out[0] = -0.5 / np.sqrt(y[0]) if y[0] > 0.0 else np.nan
"""
