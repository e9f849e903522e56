"""Systems as users write them, with known solutions; at the top of a module, where workers of a sweep find them."""

# ruff: noqa: RUF012

from dataclasses import dataclass

import numpy as np
from numba import njit

import dynamics


@dataclass(frozen=True)
class Logistic(dynamics.System):
    """y' = r y (1 − y): y = 1/(1 + (1/y0 − 1) e^(−rt)), half of it at ln(1/y0 − 1)/r."""

    rate: float = 1.0
    first: float = 0.01

    observables = {"share": (), "loss": ()}
    event_times = {"half_time": ()}

    @njit
    def field(t, y, out, constants, sizes, work):
        out[0] = constants[0] * y[0] * (1.0 - y[0])

    @njit
    def events(t, y, out, constants, sizes, work):
        out[0] = y[0] - 0.5

    def initial_state(self):
        return [self.first]

    def constants(self):
        return [self.rate]

    def observe(self, state):
        return {"share": state[0], "loss": (1.0 - state[0]) ** 2}

    def share(self, t):
        return 1.0 / (1.0 + (1.0 / self.first - 1.0) * np.exp(-self.rate * t))


@dataclass(frozen=True)
class Stiff(dynamics.System):
    """y' = −λ (y − cos t) − sin t, of Prothero and Robinson: y = cos t."""

    decay: float = 1e4

    @njit
    def field(t, y, out, constants, sizes, work):
        out[0] = -constants[0] * (y[0] - np.cos(t)) - np.sin(t)

    def initial_state(self):
        return [1.0]

    def constants(self):
        return [self.decay]


@dataclass(frozen=True)
class StiffWithJacobian(Stiff):
    @njit
    def jacobian_diagonal(t, y, out, constants, sizes, work):
        out[0] = -constants[0]

    @njit
    def jacobian_product(t, y, v, out, constants, sizes, work):
        out[0] = -constants[0] * v[0]


@dataclass(frozen=True)
class Circles(dynamics.System):
    """Points that turn on unit circles: angle ω_i t; the scratch holds the angular velocities."""

    frequencies: tuple = (1.0, 2.0)

    observables = {"place": ("circle", "axis")}
    event_times = {"quarter_time": ("circle",), "start_time": (), "never": ()}
    work_size = 2

    @njit
    def field(t, y, out, constants, sizes, work):
        for i in range(sizes[0]):
            work[i] = constants[i]
        for i in range(sizes[0]):
            out[2 * i] = -work[i] * y[2 * i + 1]
            out[2 * i + 1] = work[i] * y[2 * i]

    @njit
    def events(t, y, out, constants, sizes, work):
        count = sizes[0]
        for i in range(count):
            out[i] = -y[2 * i]
        out[count] = y[0]
        out[count + 1] = -1.0

    @njit
    def normalise(y, constants, sizes):
        for i in range(sizes[0]):
            length = np.hypot(y[2 * i], y[2 * i + 1])
            y[2 * i] /= length
            y[2 * i + 1] /= length

    def initial_state(self):
        return np.tile([1.0, 0.0], len(self.frequencies))

    def constants(self):
        return self.frequencies

    def sizes(self):
        return (len(self.frequencies),)

    def observe(self, state):
        return {"place": state.reshape(-1, 2)}

    def coordinates(self):
        return {"axis": ["x", "y"], "circle": np.arange(len(self.frequencies))}

    def absolute_tolerance(self, atol):
        return np.full(2 * len(self.frequencies), atol)


@dataclass(frozen=True)
class OfProblem(dynamics.System):
    """The overlap of a lone pair, C' = a g'(C) (1 − C²) of h_k, which `dynamics.solve_decoupled` solves by quadrature."""

    problem: dynamics.Problem

    observables = {"overlap": ("direction",)}

    @njit
    def field(t, y, out, constants, sizes, work):
        for p in range(y.size):
            out[p] = constants[p] * sizes[0] * y[p] ** (sizes[0] - 1) * (1.0 - y[p] ** 2)

    def initial_state(self):
        return np.diag(self.problem.start().teacher_overlap)

    def constants(self):
        return self.problem.teacher.coefficients

    def sizes(self):
        return (self.problem.information_exponent,)

    def observe(self, state):
        return {"overlap": state}


def overlap_of(problem, *, save_at, rtol=1e-8):
    return dynamics.solve_system(OfProblem(problem), save_at=save_at, rtol=rtol)
