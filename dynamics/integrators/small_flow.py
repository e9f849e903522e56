"""The small-flow method as a stepper of the overlaps."""

from __future__ import annotations

import time as clock
from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.vectors import VectorSystem
from dynamics.integrators import small_flow_kernels as kernels
from dynamics.integrators import step_kernels as slots
from dynamics.integrators.clusters import LAG_TOLERANCE, NOTICED, STALL_GAIN, STALL_STEPS
from dynamics.integrators.compiled_stepper import STATISTICS, CompiledStepper, Layout, VectorStepper
from dynamics.integrators.large_flow.stepper import tolerances
from dynamics.integrators.stepper import Tolerances
from dynamics.integrators.system_calls import bound_system

if TYPE_CHECKING:
    from dynamics.problem import Problem


_ROWS = (
    slots.ROW_STATE,
    slots.ROW_START,
    *range(slots.ROW_STAGES, slots.ROW_ZERO),
    kernels.ROW_RATES,
    kernels.ROW_RATES_START,
    kernels.ROW_DRIFT,
)


class _ClusterSteps(CompiledStepper):
    """The compiled loop, which also knows whether its steps still advance the time."""

    @property
    def stalled(self) -> bool:
        """Whether stiffness that no cluster explains has held up the run for long."""
        accepted = self.statistics()["steps_accepted"]
        before = kernels.END_TIMES + (accepted - STALL_STEPS) % kernels.KEPT_TIMES
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
        bound, more = bound_system(system, np.empty(system.work_size)), kernels.cluster_callbacks()
        self.compile_seconds = clock.perf_counter() - began
        layout = Layout(
            rows=kernels.SMALL_FLOW_ROWS,
            scalars=kernels.SQUARES + squares.size,
            counters=kernels.INTEGERS + 4 * (m + 1) + 1,
            carried=_ROWS,
            kept=_ROWS,
            statistics=STATISTICS,
            scratch=3 * m + problem.num_directions + 1,
        )
        coordinate, relative, norm = tolerances(problem, rtol, atol)
        self._steps = _ClusterSteps(
            kernels.advance_through,
            layout,
            system.initial_state,
            bound,
            tolerances=Tolerances(rtol=relative, atol=np.repeat([coordinate, norm], [m * D, m])),
            num_events=system.num_events,
            t0=0.0,
            more_functions=more,
            constants=[
                NOTICED * LAG_TOLERANCE * relative / np.sqrt(problem.dimension),
                float(problem.activation.parity == "even"),
                *squares,
            ],
        )
        super().__init__(self._steps, system)

    @property
    def stalled(self) -> bool:
        """Whether stiffness that no cluster explains has held up the run for long."""
        return self._steps.stalled
