"""The small-flow method as a stepper of the overlaps."""

from __future__ import annotations

import time as clock
from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.pairs.vectors import VectorSystem
from dynamics.integrators import slots
from dynamics.integrators.bdf.vector_stepper import VectorStepper
from dynamics.integrators.compiled_stepper import STATISTICS, CompiledStepper, Layout
from dynamics.integrators.large_flow.step_control import STALL_GAIN, STALL_STEPS, tolerances
from dynamics.integrators.small_flow import small_slots
from dynamics.integrators.small_flow.small_flow_kernels import advance_through
from dynamics.integrators.stepper import Tolerances
from dynamics.integrators.system_calls import bound_system

if TYPE_CHECKING:
    from dynamics.problem import Problem

#: Clusters are moved at the end of a step, and the field evaluated twice more, where another neuron would move by more
#: than this part of the tolerance, in units of 1/√d (see `large_flow.landing`).
NOTICED = 0.03
_ROWS = (
    slots.ROW_STATE,
    slots.ROW_START,
    *range(slots.ROW_STAGES, slots.ROW_ZERO),
    small_slots.ROW_RATES,
    small_slots.ROW_RATES_START,
    small_slots.ROW_DRIFT,
)


class _ClusterSteps(CompiledStepper):
    """The compiled loop, which also knows whether its steps still advance the time."""

    @property
    def stalled(self) -> bool:
        """Whether stiffness that no cluster explains has held up the run for long."""
        accepted = self.statistics()["steps_accepted"]
        before = small_slots.END_TIMES + (accepted - STALL_STEPS) % small_slots.KEPT_TIMES
        return bool(accepted > STALL_STEPS and self.time < STALL_GAIN * self._scalars[before])


class SmallFlowStepper(VectorStepper):
    """Steps of a small coupled flow, for problems against which `large_flow.reason_against` finds no reason.

    `rtol` and `atol` are as for `LargeFlowStepper`.
    """

    def __init__(self, problem: Problem, *, rtol: float, atol: float) -> None:
        system = VectorSystem(problem)
        m, D = system.shape
        squares = np.array(problem.activation.coefficients, dtype=np.float64) ** 2
        began = clock.perf_counter()
        bound = bound_system(system, np.empty(system.work_size))
        self.compile_seconds = clock.perf_counter() - began
        layout = Layout(
            rows=small_slots.SMALL_FLOW_ROWS,
            scalars=small_slots.SQUARES + squares.size,
            counters=small_slots.INTEGERS + 4 * (m + 1) + 1,
            carried=_ROWS,
            kept=_ROWS,
            statistics=STATISTICS,
            scratch=3 * m + problem.num_directions + 1,
        )
        coordinate, relative, norm = tolerances(problem, rtol, atol)
        self._steps = _ClusterSteps(
            advance_through,
            layout,
            system.initial_state,
            bound,
            tolerances=Tolerances(rtol=relative, atol=np.repeat([coordinate, norm], [m * D, m])),
            num_events=system.num_events,
            t0=0.0,
            constants=[
                NOTICED * relative / np.sqrt(problem.dimension),
                float(problem.activation.parity == "even"),
                *squares,
            ],
        )
        super().__init__(self._steps, system)

    @property
    def stalled(self) -> bool:
        """Whether stiffness that no cluster explains has held up the run for long."""
        return self._steps.stalled
