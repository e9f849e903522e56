"""One step of the large-flow solver on a device: its tensors, stages, error, and the polynomial inside it.

A step needs no value on the host, and its tensors never change place, so that it can be recorded and replayed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.integrators.clusters import DISPLACED_SHARE, KAPPA
from dynamics.integrators.explicit_kernels import DOP853_DENSE_ERROR, DOP853_WEIGHTS
from dynamics.integrators.large_flow.device.clusters import DeviceClusters
from dynamics.integrators.large_flow.device.field import DeviceField, padded
from dynamics.integrators.replay import Replay

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from torch import Tensor

    from dynamics.problem import Problem
    from hermite.arrays import Array, Integers

_END = 12  # row of the tableau that gives the step, and the stage at its end
_ERRORS, _DENSE = (16, 17), (18, 19, 20, 21)


class DeviceStep:
    """The last step on a device, and the tensors with which the next is taken.

    `begin` and `now` (m, W) are the states at both ends, as in `field`, `now_rates` the rates at the end with nothing
    slowed, `length` that of the step, None at the start, and `evaluations` those of the field so far. `tolerance` holds
    the absolute and relative one of a coordinate and the absolute one of ln n.
    """

    def __init__(
        self,
        torch: Any,
        device: Any,
        problem: Problem,
        U: Array,
        log_norm: Array,
        tolerance: tuple[float, float, float],
    ) -> None:
        self._torch, self._device = torch, device
        link, a = problem.activation, np.array(problem.teacher.coefficients, dtype=np.float64)
        m, D = U.shape
        W = padded(D)
        self._D = D
        self.field = DeviceField(
            torch, device, link.coefficients, a, m, D, sign_matters=problem.information_exponent % 2 == 1
        )
        self.clusters = DeviceClusters(
            torch, self.tensor(a), link.kernel_at_one, float(link.kernel_derivative(1.0)), (m, D, W),
            both_poles=link.parity == "even", kappa=KAPPA,
        )  # fmt: skip
        absolute, relative = np.full(W, tolerance[0]), np.full(W, tolerance[1])
        absolute[D:], relative[D:] = tolerance[2], 0.0
        self._absolute, self._relative = self.tensor(absolute), self.tensor(relative)

        def zeros(*shape: int) -> Tensor:
            return self.tensor(np.zeros(shape))

        self.begin, self.now, self._stage = zeros(m, W), zeros(m, W), zeros(m, W)
        self.begin_rates, self.now_rates = zeros(m, W), zeros(m, W)
        self._stages, self._errors, self._scale = zeros(16, m, W), zeros(2, m, W), zeros(m, W)
        self._error, self._h = zeros(), zeros()
        self._weights = self.tensor(DOP853_WEIGHTS)
        self._scaled_weights = self.tensor(DOP853_WEIGHTS)
        self._try: Callable[[], None] = Replay(torch, device, self._compute) if device.type == "cuda" else self._compute
        self._dense: Tensor | None = None
        self.length: float | None = None
        self.evaluations = 0
        self.now[:, :D], self.now[:, D] = self.tensor(U), self.tensor(log_norm)

    def tensor(self, array: NDArray[Any]) -> Tensor:
        """Return a copy of an array on the device."""
        tensor: Tensor = self._torch.from_numpy(np.ascontiguousarray(array)).to(self._device, copy=True)
        return tensor

    def start(self) -> Array:
        """Forget the past of the present state; return the values of the events."""
        torch, clusters = self._torch, self.clusters
        clusters.reset(
            torch.full_like(clusters.cluster, clusters.drift.shape[0]),
            torch.ones_like(clusters.sign),
            torch.zeros_like(clusters.drift),
        )
        self.length, self._dense = None, None
        self.begin.copy_(self.now)
        return self.look()

    def prepare(self) -> None:
        """Divide the neurons, and make the present state the beginning of the next step."""
        self._h.fill_(1.0 if self.length is None else self.length)
        self.clusters.divide(self.now, self.begin, self.now_rates, self._h)
        self.begin.copy_(self.now)
        self.begin_rates.copy_(self.now_rates)

    def attempt(self, h: float) -> float:
        """Compute the state after a step of length h; return its error in units of the tolerance."""
        self._h.fill_(h)
        self._try()
        self.evaluations += _END - 1
        self.length, self._dense = h, None
        return float(self._error)

    def repeat(self, h: float, length_before: float) -> None:
        """Take the step of length h from `begin` again, as it was taken, for the sake of its stages."""
        self.field.rates(self.begin, self.begin_rates)
        self.attempt(h)
        self.settle(length_before)

    def withdraw(self) -> None:
        """Go back to the beginning of a step that cannot be taken."""
        self.now.copy_(self.begin)
        self.start()

    def settle(self, length_before: float) -> Array:
        """Put rows at the end of a step back on the sphere and clusters where they belong; return the events.

        Other rows are moved by what they felt of clusters that sat elsewhere, the more the farther the step went: the
        change of their rates at its end, for `DISPLACED_SHARE` of the step. `length_before` is the length of the step
        before, 0 if there was none.
        """
        assert self.length is not None
        self._normalise()
        self.look()
        felt = self.now_rates.clone()
        self.clusters.land(self.now, self.begin, self.now_rates, self.length, length_before)
        self._normalise()
        self.look()
        felt.sub_(self.now_rates).mul_(self.clusters.outside[:, None])
        self.now.add_(felt, alpha=-DISPLACED_SHARE * self.length)
        self._normalise()
        return self.look()

    def _normalise(self) -> None:
        U = self.now[:, : self._D]
        U.div_(U.norm(dim=1, keepdim=True))

    def error_within(self) -> float:
        """Return the largest error of the polynomial inside the step in units of the relative tolerance."""
        last = self._coefficients()[6, :, : self._D + 1]
        return DOP853_DENSE_ERROR * float(last.norm(dim=1).max() / self._relative[0])

    def look(self) -> Array:
        """Compute the rates at the present state and find the neurons near each direction; return the events."""
        field = self.field
        field.rates(self.now, self.now_rates)
        self.clusters.look(field.n, field.overlap, field.kernel)
        self.evaluations += 1
        return np.array(field.events().cpu().numpy())

    def at(self, x: float) -> Tensor:
        """Return the state at the fraction x of the step."""
        if x in (0.0, 1.0):
            return self.now if x == 1.0 else self.begin
        Y: Tensor = self.begin + polynomial(self._coefficients(), x)
        U = Y[:, : self._D]
        U.div_(U.norm(dim=1, keepdim=True))
        return Y

    def columns(self, directions: Integers) -> tuple[Array, Array]:
        """Return some overlaps and, last, ln n: at the beginning (m, q), and as coefficients of the step (7, m, q)."""
        which = self.tensor(np.append(directions, self._D))
        start, coefficients = self.begin.index_select(1, which), self._coefficients().index_select(2, which)
        return start.cpu().numpy(), coefficients.cpu().numpy()

    # --- operations on the device -----------------------------------------------------------------------------

    def _compute(self) -> None:
        """Write the stages and the state at the end of a step, and its error."""
        torch, stages = self._torch, self._stages
        torch.mul(self._weights, self._h, out=self._scaled_weights)
        self.clusters.pace(self._h)
        stages[0].copy_(self.begin_rates)
        self.clusters.slow(stages[0], self.begin, torch.exp(self.begin[:, self._D]))
        for s in range(1, _END):
            self._evaluate_stage(s)
        self._add_stages(_END, self.now)
        for row, error in zip(_ERRORS, self._errors, strict=True):
            torch.mv(stages[:_END].view(_END, -1).t(), self._weights[row, :_END], out=error.view(-1))
        torch.maximum(self.begin.abs(), self.now.abs(), out=self._scale)
        self._scale.mul_(self._relative).add_(self._absolute)
        five, three = self._errors.div_(self._scale).square_().sum(2)
        total = ((five + 0.01 * three) * (self._D + 1.0)).clamp_(min=1e-300).sqrt_()
        self._error.copy_((self._h * five / total).max())

    def _evaluate_stage(self, s: int) -> None:
        self._add_stages(s, self._stage)
        self.field.rates(self._stage, self._stages[s])
        self.clusters.slow(self._stages[s], self._stage, self.field.n)

    def _add_stages(self, s: int, out: Tensor) -> None:
        """Write y_0 + h Σ_j w_sj k_j, with the weights of row s of the tableau."""
        stages = self._stages[:s].view(s, -1)
        self._torch.addmv(self.begin.view(-1), stages.t(), self._scaled_weights[s, :s], out=out.view(-1))

    def _coefficients(self) -> Tensor:
        """Return the coefficients b_0 … b_6 of the polynomial inside the step, shape (7, m, W)."""
        if self._dense is None:
            torch, stages, h = self._torch, self._stages, self.length
            assert h is not None
            stages[_END].copy_(self.now_rates)
            self.clusters.slow(stages[_END], self.now, torch.exp(self.now[:, self._D]))
            for s in range(_END + 1, 16):
                self._evaluate_stage(s)
            self.evaluations += 3
            dense = self._dense = torch.empty((7, *self.now.shape), dtype=self.now.dtype, device=self._device)
            torch.sub(self.now, self.begin, out=dense[0])
            torch.sub(h * stages[0], dense[0], out=dense[1])
            torch.sub(2.0 * dense[0], h * (stages[_END] + stages[0]), out=dense[2])
            for row, coefficient in zip(_DENSE, dense[3:], strict=True):
                torch.mv(stages.view(16, -1).t(), self._scaled_weights[row], out=coefficient.view(-1))
        return self._dense


def polynomial(coefficients: Any, x: float) -> Any:
    """Return x (b_0 + (1−x)(b_1 + x (b_2 + (1−x)(b_3 + …)))), the change since the beginning of a step."""
    total = coefficients[6]
    for q in range(5, -1, -1):
        total = coefficients[q] + (x if q % 2 == 1 else 1.0 - x) * total
    return x * total
