r"""The large-flow solver on a device, in double precision.

The equations, the pair of formulas, the slowed clusters and the step control of
`dynamics.integrators.large_flow.stepper`; but the whole field is computed at every stage.  On a graphics processor its
two products cost little more than the memory traffic of a step, so that there is neither a lagged rest nor a division
into fast and slow neurons, and every step is the same sequence of operations.  The state stays on the device; the host
sees one number per attempted step, and the events.

A state is one matrix Y (m, W): unit vectors in the first D columns, ln n in column D, then at least one column of zeros
up to a multiple of eight, so that rows are aligned and one operation moves directions and norms together.  Its rates:

.. math:: u_i' = F_i - \frac{F_i \cdot u_i}{u_i \cdot u_i} u_i, \qquad (\ln n_i)' = 4\, \text{growth}_i

Every direction has its place in tensors of fixed shape, whether it has a cluster or not, so that no decision has to
wait for the host and a step is the same sequence of operations whatever the clusters are.  All other neurons are alike:
with the whole field computed at every stage there are no fast sources.

A step needs no value on the host, and its tensors never change place, so that it can be recorded and replayed.

References
----------
E. Hairer, S. P. Norsett and G. Wanner, Solving Ordinary Differential Equations I, second edition, II.4 to II.6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.equations.losses import events_of_directions
from dynamics.equations.vectors import unit_vectors
from dynamics.integrators.clusters import (
    DISPLACED_SHARE,
    DISTANCE,
    GROUP,
    KAPPA,
    LEAVE_DISTANCE,
    LEAVE_STILL,
    MASS,
    STALL_STEPS,
    STILL,
)
from dynamics.integrators.device import Replay, load_torch
from dynamics.integrators.explicit_kernels import DOP853_DENSE_ERROR, DOP853_WEIGHTS
from dynamics.integrators.large_flow.stepper import ClusterStepper, tolerances
from dynamics.integrators.stepper import check_inside, check_stored, record_crossings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray
    from torch import Tensor

    from dynamics.integrators import Status
    from dynamics.problem import Problem
    from hermite.arrays import Array, Integers

_ALIGNMENT = 8


class DeviceField:
    """Evaluates the field of m neurons in R^D, the directions being the first P axes; work space is allocated once."""

    def __init__(self, torch: Any, device: Any, problem: Problem, m: int, D: int) -> None:
        self.torch, self.m, self.D = torch, m, D
        link, P = problem.activation, problem.num_directions
        #: g(1) and g'(1).
        self.value, self.slope = link.kernel_at_one, float(link.kernel_derivative(1.0))
        #: Whether only C > 0 counts as emergence, and whether −θ_p is as good as θ_p for a cluster.
        self.sign_matters, self.both_poles = problem.information_exponent % 2 == 1, link.parity == "even"
        weights = [float(c) ** 2 for c in link.coefficients]

        def empty(*shape: int) -> Tensor:
            tensor: Tensor = torch.empty(shape, dtype=torch.float64, device=device)
            return tensor

        self._g0 = _Polynomial(torch, device, weights)
        self._g1 = _Polynomial(torch, device, [j * w for j, w in enumerate(weights)][1:])
        #: Overlaps with all neurons and directions [G | C], and their g; n of the neurons; a of the directions.
        self.overlap, self.kernel, self.n = empty(m, m + P), empty(m, m + P), empty(m)
        self._square, self._force = empty(m, m + P), empty(m, m + P)
        #: Strength of every source: −n of the neurons, a of the directions.
        self._strength = empty(m + P)
        self.a = self._strength[m:]
        self.a.copy_(torch.from_numpy(np.array(problem.teacher.coefficients, dtype=np.float64)))
        self._growth, self._radial, self._product = empty(m), empty(m), empty(m, D)

    def rates(self, Y: Tensor, out: Tensor) -> None:
        """Write the rates [u' | (ln n)'] of a state; leave n, [G | C] and g of that in `n`, `overlap`, `kernel`."""
        torch, m, D, P = self.torch, self.m, self.D, self.a.numel()
        U, F = Y[:, :D], out[:, :D]
        torch.exp(Y[:, D], out=self.n)
        torch.neg(self.n, out=self._strength[:m])
        torch.mm(U, U.t(), out=self.overlap[:, :m])
        self.overlap[:, m:].copy_(U[:, :P])
        torch.mul(self.overlap, self.overlap, out=self._square)
        self._g0.write(self.overlap, self._square, self.kernel)
        self._g1.write(self.overlap, self._square, self._force)
        torch.mv(self.kernel, self._strength, out=self._growth)
        # A neuron's force on itself is radial, and large where the others' is small.
        self._force[:, :m].fill_diagonal_(0.0)
        self._force.mul_(self._strength)
        torch.mm(self._force[:, :m], U, out=F)
        F[:, :P].add_(self._force[:, m:])
        torch.mul(F, U, out=self._product)
        torch.sum(self._product, 1, out=self._radial)
        self._radial.div_(self.overlap[:, :m].diagonal())
        F.addcmul_(U, self._radial[:, None], value=-1.0)
        torch.mul(self._growth, 4.0, out=out[:, D])

    def events(self) -> Tensor:
        """Return max_i C_ip² − ½, then Σ_i n_i g(C_ip)/g(1) − a_p/2, of the state whose rates were computed last."""
        C = self.overlap[:, self.m :]
        size = C.clamp(min=0.0) if self.sign_matters else C
        largest = (size * size).amax(0) - 0.5
        mass = self.torch.mv(self.kernel[:, self.m :].t(), self.n) / self.value - 0.5 * self.a
        tensor: Tensor = self.torch.cat([largest, mass])
        return tensor


class _Polynomial:
    """Σ_j w_j s^j, j ≥ 2, by Horner in s, or in s² when all powers have the parity of the lowest one."""

    def __init__(self, torch: Any, device: Any, weights: list[float]) -> None:
        powers = [j for j, w in enumerate(weights) if w != 0.0]
        self._torch = torch
        self._lowest = powers[0]
        self._even = all((j - self._lowest) % 2 == 0 for j in powers)
        chain = weights[self._lowest : powers[-1] + 1 : 2 if self._even else 1]
        # Numbers on the device, because adding a number of the host to a product takes a second pass over memory.
        self._chain = torch.tensor(chain, dtype=torch.float64, device=device).unbind()

    def write(self, s: Tensor, square: Tensor, out: Tensor) -> None:
        """Write the polynomial of every element of `s`, given its square."""
        torch, chain, left = self._torch, self._chain, self._lowest
        base = square if self._even else s
        if len(chain) > 1:
            torch.addcmul(chain[-2], base, chain[-1], out=out)
            for weight in reversed(chain[:-2]):
                torch.addcmul(weight, base, out, out=out)
        else:
            # j ≥ 2: the information exponent is at least 3.
            torch.mul(square, chain[0], out=out)
            left -= 2
        for _ in range(left // 2):
            out.mul_(square)
        if left % 2 == 1:
            out.mul_(s)


class DeviceClusters:
    """Divides neurons into clusters, step after step, and slows their mean velocities.

    `cluster` (m,) is the direction of the cluster of each neuron, P for none, `sign` (m,) the pole at which it sits, +1
    or −1, and `drift` (P, W) the mean velocity of each cluster over the last step. A slowed mode relaxes by e^(−κ) in a
    step.
    """

    def __init__(self, field: DeviceField, W: int) -> None:
        torch = self._torch = field.torch
        self._field, self._a, self._D = field, field.a, field.D
        m, P = field.m, field.a.numel()
        self._P = P
        self._rates = torch.stack([field.a * field.slope, 4.0 * field.a * field.value], 1)
        real, whole = (
            {"dtype": torch.float64, "device": field.a.device},
            {"dtype": torch.int64, "device": field.a.device},
        )
        self.cluster, self.sign = torch.full((m,), P, **whole), torch.ones(m, **real)
        self.drift = torch.zeros(P, W, **real)
        # Read by `slow`: the members in order, the share of the mean velocity that is taken away.
        self._order, self._offsets = torch.arange(m, **whole), torch.zeros(P + 1, **whole)
        self._place, self._inside = torch.zeros(m, **whole), torch.zeros(m, **real)
        self._held = torch.zeros(P, W, **real)
        self._rows, self._turned = torch.empty(m, W, **real), torch.zeros(m, W, **real)
        self._product = torch.empty(m, self._D, **real)
        # Left by `look` for `divide`: nearest direction where a neuron is near one, else P, pole, squared distances.
        self._near, self._pole = torch.full((m,), P, **whole), torch.ones(m, **real)
        self._share = torch.zeros(m, **real)

    def reset(self, cluster: Tensor, sign: Tensor, drift: Tensor) -> None:
        """Take over a division."""
        self.cluster.copy_(cluster)
        self.sign.copy_(sign)
        self.drift.copy_(drift)
        order, offsets = self._sorted(self.cluster)
        self._order.copy_(order)
        self._offsets.copy_(offsets)
        inside = self.cluster < self._P
        self._inside.copy_(inside)
        self._place.copy_(self.cluster.clamp(max=self._P - 1))

    @property
    def outside(self) -> Tensor:
        """Return 1 for every neuron that is in no cluster, else 0."""
        tensor: Tensor = 1.0 - self._inside
        return tensor

    def look(self) -> None:
        """Find the neurons near each direction at the state whose rates the field computed last."""
        torch, field, m, P = self._torch, self._field, self._field.m, self._P
        C = field.overlap[:, m:]
        best, nearest = (C.abs() if field.both_poles else C.clamp(min=0.0)).max(1)
        here = torch.where(best**2 > GROUP, nearest, P)
        self._near.copy_(here)
        self._pole.copy_(torch.where(C.gather(1, nearest[:, None])[:, 0] < 0.0, -1.0, 1.0))
        # ‖Σ n σ(u·) − a σ(e·)‖² without a² g(1), as a sum over rows.
        together = field.kernel[:, :m] * (here[:, None] == here[None, :])
        pull = field.kernel[:, m:].gather(1, nearest[:, None])[:, 0] * self._a[nearest]
        self._share.copy_(field.n * (together @ field.n - 2.0 * pull))

    def divide(self, Y: Tensor, before: Tensor, rates: Tensor, h: Tensor) -> None:
        """Make the division for the next step at the state that `look` saw.

        `Y` and `before` (m, W) are the states now and one step, of length `h`, earlier; the same at the start. `rates`
        (m, W) are those now, with nothing slowed.
        """
        torch, a, D, P = self._torch, self._a, self._D, self._P
        value, slope = self._field.value, self._field.slope
        n = torch.exp(Y[:, D])
        order, offsets = self._sorted(self._near)
        sums = self._sums(torch.stack([n, self._share], 1).index_select(0, order), offsets)
        mass, distance = sums[:, 0], a**2 * value + sums[:, 1]
        drift = self._means((Y - before) / h, n, self._pole, order, offsets)
        miss = self._means(rates, n, self._pole, order, offsets) - drift
        off_direction, off_norm = miss[:, :D].norm(dim=1), miss[:, D].abs()
        accepted = self._counts(self.cluster)[:P] > 0
        patience = STILL * torch.where(accepted, LEAVE_STILL, 1.0)
        passed = (
            ((mass - a).abs() <= MASS * a)
            & (distance <= DISTANCE * a**2 * value * torch.where(accepted, LEAVE_DISTANCE, 1.0))
            & (off_direction <= patience * a * slope)
            & (off_norm <= patience * 4.0 * a * value)
        )
        place = self._near.clamp(max=P - 1)
        cluster = torch.where((self._near < P) & passed[place], self._near, P)
        # A mean velocity over a step is one of the members it had then.
        moved = cluster != self.cluster
        changed = self._counts(cluster, moved) + self._counts(self.cluster, moved)
        kept = passed & (changed[:P] == 0)
        self.reset(cluster, self._pole, torch.where(kept[:, None], drift, 0.0))

    def pace(self, h: Tensor) -> None:
        """Fit the slowing to a step of length h: θ = min(1, κ/(rate h)) of direction and norm."""
        held = 1.0 - (KAPPA / (h * self._rates)).clamp(max=1.0)
        self._held[:, : self._D] = held[:, :1]
        self._held[:, self._D] = held[:, 1]

    def slow(self, rates: Tensor, Y: Tensor, n: Tensor) -> None:
        """Replace the mean velocity v of every cluster by θ v + (1 − θ) drift, in place (see `slow_together`)."""
        torch, D = self._torch, self._D
        excess = self._means(rates, n, self.sign, self._order, self._offsets)
        excess.sub_(self.drift).mul_(self._held)
        torch.index_select(excess, 0, self._place, out=self._rows)
        b, growth = self._rows[:, :D], self._rows[:, D]
        U, F, poles = Y[:, :D], rates[:, :D], (self.sign * self._inside)[:, None]
        lean = self._along(U, b).mul_(self.sign)
        turning = 0.25 * self._field.slope / self._field.value
        torch.mul(U, (lean + turning * growth)[:, None], out=self._turned[:, :D])
        self._turned[:, D].copy_(lean)
        mean = self._means(self._turned, n, self.sign, self._order, self._offsets).index_select(0, self._place)
        growth.add_(lean - mean[:, D], alpha=4.0)
        rates[:, D].addcmul_(growth, self._inside, value=-1.0)
        F.addcmul_(b.add_(mean[:, :D]), poles, value=-1.0)
        # A radial rounding would become an error of ln n in the stages of a long step.
        F.addcmul_(U, (self._along(U, F) * self._inside)[:, None], value=-1.0)

    def land(self, Y: Tensor, begin: Tensor, rates: Tensor, h: float, h_last: float) -> None:
        """Move the clusters at the end of a step to where their stiff means belong (see `weigh_shifts`), in place.

        `Y` and `begin` (m, W) are the states at its ends, `rates` those at the end when nothing is slowed; `h_last` is
        the length of the step before, 0 if there was none.
        """
        torch, D = self._torch, self._D
        n = torch.exp(Y[:, D])
        velocity = self._means(rates, n, self.sign, self._order, self._offsets)
        moved = self._means(Y - begin, n, self.sign, self._order, self._offsets)
        # The drift of a cluster whose members have just changed is unknown, and 0.
        known = (self.drift != 0.0).any(1, keepdim=True)
        rho = torch.where(known, h / (h + h_last) if h_last > 0.0 else 0.0, 0.0)
        rate, follows = torch.empty_like(self._held), -torch.expm1(-(h * self._rates - KAPPA).clamp(min=0.0))
        rate[:, :D], rate[:, D:] = self._rates[:, :1], self._rates[:, 1:]
        shift = (velocity - (1.0 + rho) * moved / h + rho * self.drift) / (rate + (1.0 + rho) / h)
        shift[:, :D] *= follows[:, :1]
        shift[:, D:] *= follows[:, 1:]
        shift[:, -1] = 0.0
        rows = shift.index_select(0, self._place) * self._inside[:, None]
        U, b = Y[:, :D], rows[:, :D] * self.sign[:, None]
        Y[:, D] += rows[:, D]
        U += b - U * self._along(U, b)[:, None]

    def _along(self, U: Tensor, V: Tensor) -> Tensor:
        """Return (u·v)/(u·u) of all rows."""
        torch = self._torch
        torch.mul(U, V, out=self._product)
        product = self._product.sum(1)
        torch.mul(U, U, out=self._product)
        quotient: Tensor = product.div_(self._product.sum(1))
        return quotient

    def _means(self, X: Tensor, n: Tensor, sign: Tensor, order: Tensor, offsets: Tensor) -> Tensor:
        """Return Σ n s x / Σ n of each group, for the norms Σ n x / Σ n; zero for an empty group."""
        D = self._D
        weight = (n * sign).index_select(0, order)[:, None]
        weighted = X.index_select(0, order).mul_(weight)
        weighted[:, D].mul_(sign.index_select(0, order))
        # The last column of a state is padding.
        weighted[:, -1] = n.index_select(0, order)
        sums = self._sums(weighted, offsets)
        return sums.div_(sums[:, -1:].clamp(min=1e-300))

    def _sums(self, X: Tensor, offsets: Tensor) -> Tensor:
        """Return sums over consecutive rows; always in the same order, so that runs repeat bit for bit."""
        tensor: Tensor = self._torch.segment_reduce(X, "sum", offsets=offsets, axis=0, unsafe=True)
        return tensor

    def _sorted(self, group: Tensor) -> tuple[Tensor, Tensor]:
        """Return rows by group, and where each group begins; rows without a group come last and belong to none."""
        torch = self._torch
        values, order = torch.sort(group, stable=True)
        return order, torch.searchsorted(values, torch.arange(self._P + 1, device=group.device))

    def _counts(self, group: Tensor, counted: Tensor | None = None) -> Tensor:
        """Return how many rows each group has, those without a group last."""
        torch = self._torch
        each = torch.ones_like(group) if counted is None else counted.to(torch.int64)
        counts: Tensor = torch.zeros(self._P + 1, dtype=torch.int64, device=group.device)
        return counts.index_add_(0, group, each)


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
        m, D = U.shape
        # One column for ln n, and one of zeros at least.
        W = -(-(D + 2) // _ALIGNMENT) * _ALIGNMENT
        self._D = D
        self.field = DeviceField(torch, device, problem, m, D)
        self.clusters = DeviceClusters(self.field, W)
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
        self.field.rates(self.now, self.now_rates)
        self.clusters.look()
        self.evaluations += 1
        return np.array(self.field.events().cpu().numpy())

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


class TorchFlowStepper(ClusterStepper):
    """Steps of the coupled flow of many neurons on a device: "cpu", "cuda" or "cuda:<number>".

    Problem and tolerances are as for `LargeFlowStepper`. On a CUDA device the operations of a step are recorded once as
    a graph. Raises ImportError if torch is not installed, ValueError if there is no such device.
    """

    #: Nothing is compiled.
    compile_seconds = 0.0

    def __init__(self, problem: Problem, *, rtol: float, atol: float, device: str) -> None:
        super().__init__(2 * problem.num_directions)
        torch = self._torch = load_torch(device)
        self._part = problem.learned_part
        self._a = np.array(problem.teacher.coefficients, dtype=np.float64)
        U, log_norm = unit_vectors(problem)
        self._m, self._D = U.shape
        tolerance = tolerances(problem, rtol, atol)
        self._step = DeviceStep(torch, torch.device(device), problem, U, log_norm, tolerance)
        self._time_last = self._length_before = 0.0
        self._start_events(self._step.start())
        # A first step short enough to be linear.
        speed = self._step.now_rates[:, : self._D].abs().max() * (rtol / tolerance[0])
        rate = torch.maximum(speed, self._step.now_rates[:, self._D].abs().max())
        self._h = 1e-2 / max(float(rate), 1e-290)

    # --- the stepper's protocol -----------------------------------------------------------------------------

    def interpolate(self, t: float, out: Array | None = None) -> Array:
        """Return the overlaps [C | G | ln n] at a time within the last step."""
        Y = self._at(t)
        U = Y[:, : self._D]
        G = U @ U.t()
        G.fill_diagonal_(1.0)
        return self._overlaps(Y[:, : self._a.size], G, Y[:, self._D], out)

    def vectors(self, t: float) -> tuple[Array, Array]:
        """Return the unit vectors and ln n at a time within the last step, both ends included."""
        Y = self._at(t).cpu().numpy()
        return Y[:, : self._D].copy(), Y[:, self._D].copy()

    def loss(self, t: float) -> float:
        """Return E(f − f*)² at a time within the last step; a difference of O(1) terms, so rounding below ~1e-12."""
        field, Y = self._step.field, self._at(t)
        field.rates(Y, self._torch.empty_like(Y))
        students, teachers = field.kernel[:, : self._m], field.kernel[:, self._m :]
        excess = field.n @ (students @ field.n - 2.0 * (teachers @ field.a))
        return field.value * float(self._a @ self._a) + float(excess)

    def summary(self, t: float) -> dict[str, Array | float]:
        """Return what `OverlapSystem.summarise` says of a time within the last step, without moving G to the host."""
        torch, P, field = self._torch, self._a.size, self._step.field
        loss, Y = self.loss(t), self._at(t)
        size = Y[:, :P].clamp(min=0.0) if field.sign_matters else Y[:, :P].abs()
        learned = (field.n @ field.kernel[:, self._m :]) / field.value
        largest, mass, n = np.split(torch.cat([size.amax(0), learned, field.n]).cpu().numpy(), [P, 2 * P])
        return {"max_overlap": largest, "learned_mass": mass, "squared_norm": n, "loss": loss}

    def derivative(self, t: float) -> Array:
        """Return the rates of the overlaps at a time within the last step."""
        Y = self._at(t)
        rates = self._torch.empty_like(Y)
        self._step.field.rates(Y, rates)
        product = rates[:, : self._D] @ Y[:, : self._D].t()
        return self._overlaps(rates[:, : self._a.size], product + product.t(), rates[:, self._D])

    def statistics(self) -> dict[str, int]:
        """Return counts of steps and evaluations."""
        return self._counts | {"rhs_evaluations": self._step.evaluations}

    def _copies(self) -> dict[str, NDArray[np.generic]]:
        step, clusters = self._step, self._step.clusters
        tensors = {"now": step.now}
        numbers = [self._time, self._h]
        if step.length is not None:
            tensors |= {
                "begin": step.begin,
                "cluster": clusters.cluster,
                "sign": clusters.sign,
                "drift": clusters.drift,
            }
            numbers += [self._time_last, step.length, self._length_before]
        return {name: np.array(tensor.cpu().numpy()) for name, tensor in tensors.items()} | {
            "times_and_steps": np.array(numbers),
            "events": np.stack([self._event_times, self._events]),
            "marks": np.array(self._marks),
            "counts": np.array(list(self.statistics().values())),
        }

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from the arrays of a stepper of the same problem."""
        step, given = self._step, {name: np.array(array) for name, array in state.items()}
        check_stored(given, "now", tuple(step.now.shape))
        self._time, self._h, *last = given["times_and_steps"].tolist()
        self._event_times, self._events = given["events"].copy()
        self._marks = given["marks"].tolist()
        step.now.copy_(step.tensor(given["now"]))
        step.start()
        if last:
            self._time_last, length, *before = last
            self._length_before = before[0] if before else 0.0  # not stored by earlier versions
            step.begin.copy_(step.tensor(given["begin"]))
            step.clusters.reset(*(step.tensor(given[name]) for name in ("cluster", "sign", "drift")))
            step.repeat(length, self._length_before)
        *tried, step.evaluations = given["counts"].tolist()
        self._counts = dict(zip(self._counts, tried, strict=True))

    # --- one step -------------------------------------------------------------------------------------------

    def _advance_once(self, target: float) -> Status | None:
        # What a step starts from is on the device, and is overwritten there.
        with self._whole:
            return super()._advance_once(target)

    def _prepare(self) -> None:
        self._before = self._step.length or 0.0
        self._step.prepare()

    def _try(self, h: float, *, dense: bool) -> tuple[float, float, float]:
        error = self._step.attempt(h)
        if not error <= 1.0:
            return error, 0.0, 0.0
        self._reached = self._step.settle(self._before)
        return error, self._step.error_within() if dense else 0.0, 0.0

    def _withdraw(self) -> None:
        self._step.withdraw()
        self._time_last = self._time

    def _accept(self, h: float, h_next: float) -> None:
        before, self._events, self._length_before = self._events, self._reached, self._before
        self._time_last, self._time, self._h = self._time, self._time + h, h_next
        self._counts["steps_accepted"] += 1
        self._marks = [*self._marks[-STALL_STEPS:], self._time]
        passed = np.flatnonzero(np.isnan(self._event_times) & (self._events >= 0.0))
        if passed.size > 0:
            values_at = self._events_at(np.unique(passed % self._a.size), before)
            record_crossings(self._event_times, before, self._events, (self._time_last, self._time), values_at)

    # --- inside the last step ---------------------------------------------------------------------------------

    def _at(self, t: float) -> Tensor:
        """Return the state at a time within the last step, on the device."""
        check_inside(t, self._time_last, self._time)
        return self._step.at(1.0 if t == self._time else (t - self._time_last) / (self._step.length or 1.0))

    def _events_at(self, directions: Integers, before: Array) -> Callable[[float], Array]:
        """Return a function of t with the values of all events, right for these directions alone."""
        start, coefficients = self._step.columns(directions)
        values, P, begun, length = before.copy(), self._a.size, self._time_last, self._step.length or 1.0

        def values_at(t: float) -> Array:
            y = start + polynomial(coefficients, (t - begun) / length)
            C, n = y[:, :-1], np.exp(y[:, -1])
            values[directions], values[P + directions] = events_of_directions(
                self._part, self._a[directions], C, n, sign_matters=self._step.field.sign_matters
            )
            return values

        return values_at

    def _overlaps(self, C: Tensor, G: Tensor, log_norm: Tensor, out: Array | None = None) -> Array:
        """Return [C | G | ln n] as one array of the host."""
        state: Array = self._torch.cat([C.reshape(-1), G.reshape(-1), log_norm]).cpu().numpy()
        if out is None:
            return state
        out[...] = state
        return out
