"""Small systems with known solutions, for the compiled steppers."""

import numpy as np

from dynamics.equations.interface import EquationSystem, Functions
from dynamics.integrators import stepper_of
from dynamics.kernels.jit import kernel


@kernel
def no_events(t, y, out, parameters, sizes, work):
    pass


@kernel
def no_constraint(y, parameters, sizes):
    pass


def toy(system, *, events=no_events, constraint=no_constraint):
    """Return the functions of a system: its right-hand side, the diagonal of its Jacobian and its product, if any."""
    rhs, *jacobian = system
    return Functions(rhs, events, constraint, *jacobian)


# y = (cos ωt, sin ωt) from (1, 0), ω = parameters[0].
@kernel
def rotation(t, y, out, parameters, sizes, work):
    out[0] = -parameters[0] * y[1]
    out[1] = parameters[0] * y[0]


@kernel
def rotation_diagonal(t, y, out, parameters, sizes, work):
    out[0] = 0.0
    out[1] = 0.0


ROTATION = rotation, rotation_diagonal


# sin ωt reaches ½ at ωt = π/6 and again one turn later; cos ωt >= 0 holds at the start; cos ωt >= ½ is lost and
# regained; the last one never happens.
@kernel
def rotation_events(t, y, out, parameters, sizes, work):
    out[0] = y[1] - 0.5
    out[1] = y[0]
    out[2] = -y[0]
    out[3] = -2.0 + y[0]


ROTATION_EVENTS = rotation_events


# Prothero and Robinson: y' = -λ (y - cos t) - sin t, solution cos t from 1, λ = parameters[0].
@kernel
def prothero_robinson(t, y, out, parameters, sizes, work):
    out[0] = -parameters[0] * (y[0] - np.cos(t)) - np.sin(t)


@kernel
def prothero_robinson_diagonal(t, y, out, parameters, sizes, work):
    out[0] = -parameters[0]


PROTHERO_ROBINSON = prothero_robinson, prothero_robinson_diagonal


# y_1' = y_2, y_2' = μ (1 - y_1²) y_2 - y_1, μ = parameters[0].
@kernel
def van_der_pol(t, y, out, parameters, sizes, work):
    out[0] = y[1]
    out[1] = parameters[0] * (1.0 - y[0] * y[0]) * y[1] - y[0]


@kernel
def van_der_pol_diagonal(t, y, out, parameters, sizes, work):
    out[0] = 0.0
    out[1] = parameters[0] * (1.0 - y[0] * y[0])


VAN_DER_POL = van_der_pol, van_der_pol_diagonal


# Escapes from 0 one after the other, each followed by fast relaxation: y_i' = a_i (y_i² - y_i³), y_i → 1, like
# directions that emerge.  Exact: t = (1/a)[1/u - 1/y + ln(y/(1-y)) - ln(u/(1-u))] from y = u.  Event i: y_i >= ½.
@kernel
def escapes(t, y, out, parameters, sizes, work):
    for i in range(y.size):
        out[i] = parameters[i] * y[i] * y[i] * (1.0 - y[i])


@kernel
def escapes_diagonal(t, y, out, parameters, sizes, work):
    for i in range(y.size):
        out[i] = parameters[i] * y[i] * (2.0 - 3.0 * y[i])


ESCAPES = escapes, escapes_diagonal


@kernel
def escapes_events(t, y, out, parameters, sizes, work):
    for i in range(y.size):
        out[i] = y[i] - 0.5


ESCAPES_EVENTS = escapes_events


# y' = y², y = 1/(1 - t): infinite at t = 1.
@kernel
def blow_up(t, y, out, parameters, sizes, work):
    out[0] = y[0] * y[0]


@kernel
def blow_up_diagonal(t, y, out, parameters, sizes, work):
    out[0] = 2.0 * y[0]


BLOW_UP = blow_up, blow_up_diagonal


# y' = -√y - 0.01, not a number below 0, which the solution reaches before t = 2.
@kernel
def not_a_number(t, y, out, parameters, sizes, work):
    out[0] = -np.sqrt(y[0]) - 0.01 if y[0] >= 0.0 else np.nan


@kernel
def not_a_number_diagonal(t, y, out, parameters, sizes, work):
    out[0] = -0.5 / np.sqrt(y[0]) if y[0] > 0.0 else np.nan


NOT_A_NUMBER = not_a_number, not_a_number_diagonal


def make_stepper(method, functions, start, parameters, *, num_events=0, atol=1e-10, **options):
    """Return a stepper of some functions, which need no sizes and no scratch."""
    system = EquationSystem()
    system.functions, system.num_events = functions, num_events
    system.initial_state, system.parameters, system.sizes = np.array(start), np.array(parameters), np.array([0])
    return stepper_of(system, method, atol=np.full(len(start), atol), **options)


def circle(t):
    return np.array([np.cos(2 * t), np.sin(2 * t)])


def rotating(method, product=(), **options):
    """Return a stepper on the circle, with four events."""
    functions = toy(ROTATION + product, events=ROTATION_EVENTS)
    return make_stepper(method, functions, [1.0, 0.0], [2.0], num_events=4, **options)


#: When the events of `rotating` are passed.
EVENT_TIMES = [np.pi / 12, 0.0, np.pi / 4, np.nan]


def escape_time(u, y, rate):
    """Return when a component of `ESCAPES` that starts at u reaches y."""
    return (1 / u - 1 / y + np.log(y / (1 - y)) - np.log(u / (1 - u))) / rate
