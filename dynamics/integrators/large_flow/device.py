r"""The large-flow solver on a device, in double precision.

The equations, the pair of formulas, the slowed clusters and the step control of
`dynamics.integrators.large_flow.stepper`; but the whole field is computed at every stage. On a graphics processor its
two products cost little more than the memory traffic of a step, so that there is neither a lagged rest nor a division
into fast and slow neurons. The state stays on the device; the host sees one number per attempted step, and the events.

A state is one matrix Y (m, W): unit vectors in the first D columns, ln n in column D, then at least one column of zeros
up to a multiple of eight, so that rows are aligned. Its rates:

.. math:: u_i' = F_i - \frac{F_i \cdot u_i}{u_i \cdot u_i} u_i, \qquad (\ln n_i)' = 4\, \text{growth}_i

Every direction has its place in tensors of fixed shape, whether it has a cluster or not, and the tensors that a step
begins and ends with never change place: it needs no value on the host, and can be recorded and replayed.

References
----------
E. Hairer, S. P. Norsett and G. Wanner, Solving Ordinary Differential Equations I, second edition, II.4 to II.6.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.equations.losses import events_of_directions, without_rounding
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
from dynamics.integrators.large_flow.stepper import ClusterStepper, polynomial, tolerances
from dynamics.integrators.stepper import check_inside, check_stored, record_crossings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray
    from torch import Tensor

    from dynamics.problem import Problem
    from hermite.arrays import Array, Integers

_ALIGNMENT = 8
_END = 12  # row of the tableau that gives the step, and the stage at its end
_ERRORS, _DENSE = (16, 17), (18, 19, 20, 21)


class _Polynomial:
    """Σ_j w_j s^j, by Horner in s, or in s² when all powers have the parity of the lowest one."""

    def __init__(self, torch: ModuleType, device: Any, weights: list[float]) -> None:
        """Prepare Σ_j w_j s^j with coefficients w_j = `weights`, from j = 0 on, for tensors on a device.

        From the lowest power on every second coefficient is kept if the powers have one parity, else each.
        """
        powers = [j for j, w in enumerate(weights) if w != 0.0]
        self._torch, self._lowest = torch, powers[0]
        self._even = all((j - self._lowest) % 2 == 0 for j in powers)
        chain = weights[self._lowest : powers[-1] + 1 : 2 if self._even else 1]
        # Numbers on the device, because adding a number of the host to a product takes a second pass over memory.
        self._chain = torch.tensor(chain, dtype=torch.float64, device=device).unbind()

    def __call__(self, s: Tensor, square: Tensor) -> Tensor:
        """Return the polynomial of every element of `s`, given its square."""
        value: Tensor = self._chain[-1]
        for weight in reversed(self._chain[:-1]):
            value = self._torch.addcmul(weight, square if self._even else s, value)
        for _ in range(self._lowest // 2):
            value = value * square
        return value * s if self._lowest % 2 == 1 else value


class DeviceField:
    """Evaluates the field of neurons in R^D, the directions being the first P axes."""

    def __init__(self, torch: ModuleType, device: Any, problem: Problem, D: int) -> None:
        """Put the kernel g of the link, its derivative and the coefficients a (P,) of a problem on a device.

        D is the number of coordinates of a neuron.
        """
        self.torch, self.D, link = torch, D, problem.activation
        #: g(1) and g'(1).
        self.value, self.slope = link.kernel_at_one, float(link.kernel_derivative(1.0))
        #: Whether only C > 0 counts as emergence, and whether −θ_p is as good as θ_p for a cluster.
        self.sign_matters, self.both_poles = problem.information_exponent % 2 == 1, link.parity == "even"
        self.level = problem.emergence_level
        weights = [float(c) ** 2 for c in link.coefficients]
        self._g0 = _Polynomial(torch, device, weights)
        self._g1 = _Polynomial(torch, device, [j * w for j, w in enumerate(weights)][1:])
        self.a = torch.tensor(problem.teacher.coefficients, dtype=torch.float64, device=device)

    def rates(self, Y: Tensor) -> Tensor:
        """Return the rates [u' | (ln n)'] of a state (m, W): unit vectors u, then ln n, then padding.

        The attributes `n`, `C`, `students` and `teachers` then hold squared norms n, overlaps C with directions, and
        the kernel g of the overlaps of neurons with each other and with directions.
        """
        torch, D, P = self.torch, self.D, self.a.numel()
        U, self.n, self.C = Y[:, :D], Y[:, D].exp(), Y[:, :P].clone()
        G = U @ U.t()
        square, square_C = G * G, self.C * self.C
        self.students, self.teachers = self._g0(G, square), self._g0(self.C, square_C)
        force = self._g1(G, square)
        # A neuron's force on itself is radial, and large where the others' is small.
        force.fill_diagonal_(0.0)
        rates: Tensor = torch.zeros_like(Y)
        F = rates[:, :D]
        torch.mm(force.mul_(self.n), U, out=F)
        F.neg_()
        F[:, :P] += self._g1(self.C, square_C) * self.a
        F -= ((F * U).sum(1) / G.diagonal())[:, None] * U
        rates[:, D] = 4.0 * (self.teachers @ self.a - self.students @ self.n)
        return rates

    def events(self) -> Array:
        """Return the values (2 P,) of the events at the state of the last rates, positive once they have passed.

        The first P are max_i C_ip² − its level, the others Σ_i n_i g(C_ip)/g(1) − a_p/2, with overlaps C_ip, squared
        norms n_i, the kernel g of the link and coefficients a_p.
        """
        size = self.C.clamp(min=0.0) if self.sign_matters else self.C
        largest = (size * size).amax(0) - self.level
        mass = (self.n @ self.teachers) / self.value - 0.5 * self.a
        return np.array(self.torch.cat([largest, mass]).cpu().numpy())

    def along(self, U: Tensor, V: Tensor) -> Tensor:
        """Return (u·v)/(u·u) for all rows u of U and v of V, (m,)."""
        quotient: Tensor = (U * V).sum(1) / (U * U).sum(1)
        return quotient


class DeviceClusters:
    """Divides m neurons into clusters, step after step, and slows their mean velocities.

    `cluster` (m,) is the direction of the cluster of each neuron, P for none, `sign` (m,) the pole at which it sits, +1
    or −1, and `drift` (P, W) the mean velocity of each cluster over the last step.
    """

    def __init__(self, field: DeviceField, m: int, W: int) -> None:
        """Begin without a cluster: m neurons, whose rows have W numbers, D coordinates, ln n and padding."""
        torch = self._torch = field.torch
        self._field, self._P = field, field.a.numel()
        #: Rates of the coordinates of each direction and of its norm, (P, W); the last columns mean nothing.
        self._rates = torch.empty(self._P, W, dtype=torch.float64, device=field.a.device)
        self._rates[:, : field.D] = (field.a * field.slope)[:, None]
        self._rates[:, field.D :] = (4.0 * field.a * field.value)[:, None]
        self.drift, self._held = torch.zeros_like(self._rates), torch.zeros_like(self._rates)
        self.sign, self.inside = torch.ones_like(field.a.new_empty(m)), field.a.new_zeros(m)
        self.cluster = torch.full((m,), self._P, device=field.a.device)
        # Members in order, where each cluster begins, and the cluster of each neuron, any for one of none.
        self._order, self._offsets = self._sorted(self.cluster)
        self._place = torch.zeros_like(self.cluster)

    def reset(self, cluster: Tensor, sign: Tensor, drift: Tensor) -> None:
        """Replace the division into clusters by a given one, in place, because recorded steps read these tensors.

        `cluster` (m,) is the direction of each neuron's cluster, P for none, `sign` (m,) its pole, +1 or −1, and
        `drift` (P, W) the mean velocity of each cluster. The order of members and other tables are computed from them.
        """
        order, offsets = self._sorted(cluster)
        inside, place = cluster < self._P, cluster.clamp(max=self._P - 1)
        stored = self.cluster, self.sign, self.drift, self._order, self._offsets, self.inside, self._place
        for tensor, value in zip(stored, (cluster, sign, drift, order, offsets, inside, place), strict=True):
            tensor.copy_(value)

    def look(self) -> None:
        """Find the neurons near each direction, at the state whose rates the field computed last.

        This stores, for each neuron, the direction that it is near (P for none), its pole, +1 or −1, and its share in
        the loss of this direction with the neurons near it.
        """
        torch, field, P = self._torch, self._field, self._P
        best, nearest = (field.C.abs() if field.both_poles else field.C.clamp(min=0.0)).max(1)
        near = self._near = torch.where(best**2 > GROUP, nearest, P)
        self._pole = torch.where(field.C.gather(1, nearest[:, None])[:, 0] < 0.0, -1.0, 1.0).double()
        # ‖Σ n σ(u·) − a σ(e·)‖² without a² g(1), as a sum over rows.
        together = (field.students * (near[:, None] == near[None, :])) @ field.n
        pull = field.teachers.gather(1, nearest[:, None])[:, 0] * field.a[nearest]
        self._share = field.n * (together - 2.0 * pull)

    def divide(self, Y: Tensor, before: Tensor, rates: Tensor, h: float) -> None:
        """Make the division for the next step at the state that `look` saw.

        `Y` and `before` (m, W) are the states now and one step, of length `h`, earlier; `rates` those now, nothing
        slowed.
        """
        torch, D, P, near = self._torch, self._field.D, self._P, self._near
        a, value, slope, n = self._field.a, self._field.value, self._field.slope, Y[:, self._field.D].exp()
        members = n, self._pole, *self._sorted(near)
        sums = self._sums(torch.stack([n, self._share], 1)[members[2]], members[3])
        mass, distance = sums[:, 0], a**2 * value + sums[:, 1]
        drift = self._means((Y - before) / h, *members)
        miss = self._means(rates, *members) - drift
        was_cluster = self._counts(self.cluster)[:P] > 0
        patience = STILL * torch.where(was_cluster, LEAVE_STILL, 1.0)
        is_cluster = (
            ((mass - a).abs() <= MASS * a)
            & (distance <= DISTANCE * a**2 * value * torch.where(was_cluster, LEAVE_DISTANCE, 1.0))
            & (miss[:, :D].norm(dim=1) <= patience * a * slope)
            & (miss[:, D].abs() <= patience * 4.0 * a * value)
        )
        cluster = torch.where((near < P) & is_cluster[near.clamp(max=P - 1)], near, P)
        # A mean velocity over a step is one of the members it had then.
        has_moved = cluster != self.cluster
        changed = self._counts(torch.where(has_moved, cluster, P)) + self._counts(
            torch.where(has_moved, self.cluster, P)
        )
        unchanged = is_cluster & (changed[:P] == 0)
        self.reset(cluster, self._pole, torch.where(unchanged[:, None], drift, 0.0))

    def pace(self, h: Tensor) -> None:
        """Fit the slowing to a step of length h: 1 − θ, θ = min(1, κ/(rate h)), of every mode."""
        self._held.copy_(1.0 - (KAPPA / (h * self._rates)).clamp(max=1.0))

    def slow(self, rates: Tensor, Y: Tensor, n: Tensor) -> None:
        """Replace the mean velocity v of every cluster by θ v + (1 − θ) drift, in place in `rates` (m, W).

        θ is that of the last call of `pace`, and the drift is the mean velocity over the last step. `Y` (m, W) is the
        state and n (m,) its squared norms. The method is that of `clusters.slow_cluster`.
        """
        D, members = self._field.D, (n, self.sign, self._order, self._offsets)
        excess = ((self._means(rates, *members) - self.drift) * self._held)[self._place]
        b, growth, U, F = excess[:, :D], excess[:, D], Y[:, :D], rates[:, :D]
        poles = self.sign * self.inside
        lean = self._field.along(U, b) * self.sign
        rotation = self._torch.zeros_like(Y)
        rotation[:, :D] = U * (lean + 0.25 * self._field.slope / self._field.value * growth)[:, None]
        rotation[:, D] = lean
        mean = self._means(rotation, *members)[self._place]
        rates[:, D] -= (growth + 4.0 * (lean - mean[:, D])) * self.inside
        F -= (b + mean[:, :D]) * poles[:, None]
        # A radial rounding would become an error of ln n in the stages of a long step.
        F -= U * (self._field.along(U, F) * self.inside)[:, None]

    def land(self, Y: Tensor, begin: Tensor, rates: Tensor, h: float, h_last: float) -> None:
        """Move the clusters at the end of a step to where their stiff means belong (see `weigh_shift`), in place.

        `Y` and `begin` are the states at its ends, `rates` those at its end; `h_last` is the length of the step before,
        or 0.
        """
        torch, D = self._torch, self._field.D
        members = Y[:, D].exp(), self.sign, self._order, self._offsets
        velocity, change = self._means(rates, *members), self._means(Y - begin, *members)
        # The drift of a cluster whose members have just changed is unknown, and 0.
        has_drift = (self.drift != 0.0).any(1, keepdim=True)
        rho = torch.where(has_drift, h / (h + h_last) if h_last > 0.0 else 0.0, 0.0)
        follows = -torch.expm1(-(h * self._rates - KAPPA).clamp(min=0.0))
        shift = velocity - (1.0 + rho) * change / h + rho * self.drift
        rows = (follows * shift / (self._rates + (1.0 + rho) / h))[self._place] * self.inside[:, None]
        U, b = Y[:, :D], rows[:, :D] * self.sign[:, None]
        Y[:, D] += rows[:, D]
        U += b - U * self._field.along(U, b)[:, None]

    def _means(self, X: Tensor, n: Tensor, sign: Tensor, order: Tensor, offsets: Tensor) -> Tensor:
        """Return mass-weighted means of rows X (m, W) over each group, (P, W); zero for an empty group.

        For vectors, at the poles s = ±1, they are Σ n s x / Σ n, for ln n Σ n x / Σ n, with squared norms n.
        """
        weighted = X * (n * sign)[:, None]
        weighted[:, self._field.D] *= sign
        # The last column of a state is padding.
        weighted[:, -1] = n
        sums = self._sums(weighted[order], offsets)
        return sums / sums[:, -1:].clamp(min=1e-300)

    def _sums(self, X: Tensor, offsets: Tensor) -> Tensor:
        """Return sums over consecutive rows; always in the same order, so that runs repeat bit for bit."""
        tensor: Tensor = self._torch.segment_reduce(X, "sum", offsets=offsets, axis=0, unsafe=True)
        return tensor

    def _sorted(self, group: Tensor) -> tuple[Tensor, Tensor]:
        """Return rows by group, and where each group begins; rows without a group come last and belong to none."""
        torch = self._torch
        values, order = torch.sort(group, stable=True)
        return order, torch.searchsorted(values, torch.arange(self._P + 1, device=group.device))

    def _counts(self, group: Tensor) -> Tensor:
        """Return how many rows each group has, those without a group last."""
        # bincount would wait for the host, since the shape of its result depends on the values.
        return group.new_zeros(self._P + 1).index_add_(0, group, self._torch.ones_like(group))


class TorchFlowStepper(ClusterStepper):
    """Steps of the coupled flow of many neurons on a device: "cpu", "cuda" or "cuda:<number>".

    Problem and tolerances are as for `LargeFlowStepper`. On a CUDA device the operations of a step are recorded once as
    a graph. Raises ImportError if torch is not installed, ValueError if there is no such device.
    """

    def __init__(self, problem: Problem, *, rtol: float, atol: float, device: str) -> None:
        """Allocate the tensors of a step on a device, and evaluate rates and events at the start.

        A state is (m, W), rows [unit vector (D) | ln n | zeros], W being a multiple of `_ALIGNMENT`; stages are (16, m,
        W). `rtol` and `atol` become tolerances of every column.
        """
        super().__init__(2 * problem.num_directions)
        torch = self._torch = load_torch(device)
        self._device = torch.device(device)
        self._part = problem.learned_part
        self._a = np.array(problem.teacher.coefficients, dtype=np.float64)
        U, log_norm = unit_vectors(problem)
        (m, D), self._rtol = U.shape, rtol
        # One column for ln n, and one of zeros at least.
        W = -(-(D + 2) // _ALIGNMENT) * _ALIGNMENT
        self.field = DeviceField(torch, self._device, problem, D)
        self.clusters = DeviceClusters(self.field, m, W)
        coordinate, relative, norm = tolerances(problem, rtol, atol)
        self._absolute = self._tensor(np.repeat([coordinate, norm], [D, W - D]))
        self._relative = self._tensor(np.repeat([relative, 0.0], [D, W - D]))
        self._weights = self._tensor(DOP853_WEIGHTS)
        #: The states at both ends of the last step (m, W), and the rates there with nothing slowed.
        self.begin, self.now, self._begin_rates, self.now_rates = self._tensor(np.zeros((4, m, W)))
        self._stages = self._tensor(np.zeros((16, m, W)))
        self._step, self._error = self._tensor(np.zeros(2))
        self._take: Callable[[], None] = self._compute
        if self._device.type == "cuda":
            self._take = Replay(torch, self._device, self._compute)
        self._evaluations = 0
        # Length of the last step, None at the start, and that of the step before, 0 if there was none.
        self._length: float | None = None
        self._length_before = self._time_last = 0.0
        self._dense: Tensor | None = None
        self.now[:, :D], self.now[:, D] = self._tensor(U), self._tensor(log_norm)
        self._start_events(self._forget())
        # A first step short enough to be linear.
        speed = float(self.now_rates[:, :D].abs().max()) * (rtol / coordinate)
        self._h = 1e-2 / max(speed, float(self.now_rates[:, D].abs().max()), 1e-290)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        """Return a copy of an array on the device."""
        tensor: Tensor = self._torch.from_numpy(np.ascontiguousarray(array)).to(self._device, copy=True)
        return tensor

    # --- the stepper's protocol -----------------------------------------------------------------------------

    def interpolate(self, t: float, out: Array | None = None) -> Array:
        """Return the overlaps [C | G | ln n] at a time within the last step."""
        Y, D = self._at(t), self.field.D
        # The copy binds a new thread to its GPU; a product as the first operation of a thread makes cuBLAS warn.
        U = Y[:, :D].clone()
        return self._overlaps(Y, (U @ U.t()).fill_diagonal_(1.0), out)

    def vectors(self, t: float) -> tuple[Array, Array]:
        """Return the unit vectors and ln n at a time within the last step, both ends included."""
        Y, D = self._at(t).cpu().numpy(), self.field.D
        return Y[:, :D].copy(), Y[:, D].copy()

    def loss(self, t: float) -> float:
        """Return E(f − f*)² at a time within the last step; a difference of O(1) terms, so rounding below ~1e-12."""
        field = self.field
        field.rates(self._at(t))
        excess = field.n @ (field.students @ field.n - 2.0 * (field.teachers @ field.a))
        constant = field.value * float(self._a @ self._a)
        return float(without_rounding(constant + float(excess), constant))

    def summary(self, t: float) -> dict[str, Array | float]:
        """Return the observables of `OverlapSystem.summarise` at a time within the last step; G stays on the device."""
        loss, P, field = self.loss(t), self._a.size, self.field
        size = field.C.clamp(min=0.0) if field.sign_matters else field.C.abs()
        learned = (field.n @ field.teachers) / field.value
        largest, mass, n = np.split(self._torch.cat([size.amax(0), learned, field.n]).cpu().numpy(), [P, 2 * P])
        return {"max_overlap": largest, "learned_mass": mass, "squared_norm": n, "loss": loss}

    def derivative(self, t: float) -> Array:
        """Return the rates of the overlaps at a time within the last step."""
        Y, D = self._at(t), self.field.D
        rates = self.field.rates(Y)
        product = rates[:, :D] @ Y[:, :D].t()
        return self._overlaps(rates, product + product.t())

    def statistics(self) -> dict[str, int]:
        """Return counts of steps and evaluations."""
        return self._counts | {"rhs_evaluations": self._evaluations}

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return copies on the host of the arrays from which `restore` continues.

        They are the state `now` (m, W) and, once a step was taken, that at its `begin` and the clusters' `cluster`,
        `sign` and `drift`; `times_and_steps`, which are the time, the next length, and of the last step its start, its
        length and that before; `events` (2, 2 P), times and values; `marks`, recent times of steps; and `counts`.
        """
        clusters, tensors, numbers = self.clusters, {"now": self.now}, [self._time, self._h]
        if self._length is not None:
            tensors |= {
                "cluster": clusters.cluster,
                "sign": clusters.sign,
                "drift": clusters.drift,
                "begin": self.begin,
            }
            numbers += [self._time_last, self._length, self._length_before]
        return {name: np.array(tensor.cpu().numpy()) for name, tensor in tensors.items()} | {
            "times_and_steps": np.array(numbers),
            "events": np.stack([self._event_times, self._events]),
            "marks": np.array(self._marks),
            "counts": np.array(list(self.statistics().values())),
        }

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from the arrays of a stepper of the same problem."""
        arrays = {name: np.array(array) for name, array in state.items()}
        check_stored(arrays, "now", tuple(self.now.shape))
        self._time, self._h, *last = arrays["times_and_steps"].tolist()
        self._event_times, self._events = arrays["events"].copy()
        self._marks = arrays["marks"].tolist()
        self.now.copy_(self._tensor(arrays["now"]))
        self._forget()
        if last:
            self._time_last, length, *before = last
            self._length_before = before[0] if before else 0.0  # not stored by earlier versions
            self.begin.copy_(self._tensor(arrays["begin"]))
            self.clusters.reset(*(self._tensor(arrays[name]) for name in ("cluster", "sign", "drift")))
            # The step is taken again, for the sake of its stages.
            self._begin_rates.copy_(self.field.rates(self.begin))
            self._attempt(length)
            self._settle(length)
        *tried, self._evaluations = arrays["counts"].tolist()
        self._counts = dict(zip(self._counts, tried, strict=True))

    # --- one step -------------------------------------------------------------------------------------------

    def _forget(self) -> Array:
        """Forget the past of the present state; return the values of the events."""
        clusters = self.clusters
        clusters.reset(self._torch.full_like(clusters.cluster, self._a.size), clusters.sign, 0.0 * clusters.drift)
        self._length, self._dense = None, None
        self.begin.copy_(self.now)
        return self._look()

    def _prepare(self) -> None:
        """Make the clusters of the next step, and store its beginning."""
        self._length_before = self._length or 0.0
        self.clusters.divide(self.now, self.begin, self.now_rates, self._length or 1.0)
        self.begin.copy_(self.now)
        self._begin_rates.copy_(self.now_rates)

    def _try(self, h: float, *, dense: bool) -> tuple[float, float, float]:
        """Try a step of length h; return its error at the end and, with `dense`, inside it, in tolerances, and 0.

        An accepted end, of error up to 1, is settled. The last number stands for the excess of the lag, which is not
        used.
        """
        error, error_within = self._attempt(h), 0.0
        if error <= 1.0:
            self._reached = self._settle(h)
            if dense:
                last = self._coefficients()[6, :, : self.field.D + 1]
                error_within = DOP853_DENSE_ERROR * float(last.norm(dim=1).max()) / self._rtol
        return error, error_within, 0.0

    def _withdraw(self) -> None:
        """Go back to the beginning of a step that cannot be taken."""
        self.now.copy_(self.begin)
        self._forget()
        self._time_last = self._time

    def _accept(self, h: float, h_next: float) -> None:
        """Accept the step of length h that was tried, record the events that it passed, and keep the next length."""
        before, self._events = self._events, self._reached
        self._time_last, self._time, self._h = self._time, self._time + h, h_next
        self._counts["steps_accepted"] += 1
        self._marks = [*self._marks[-STALL_STEPS:], self._time]
        passed = np.flatnonzero(np.isnan(self._event_times) & (self._events >= 0.0))
        if passed.size > 0:
            values_at = self._events_at(np.unique(passed % self._a.size), before)
            record_crossings(self._event_times, before, self._events, (self._time_last, self._time), values_at)

    # --- operations on the device -----------------------------------------------------------------------------

    def _attempt(self, h: float) -> float:
        """Compute the state after a step of length h; return its error in units of the tolerance."""
        self._step.fill_(h)
        self._take()
        self._evaluations += _END - 1
        self._length, self._dense = h, None
        return float(self._error)

    def _compute(self) -> None:
        """Write the stages and the state at the end of a step, and its error."""
        stages, D = self._stages, self.field.D
        self.clusters.pace(self._step)
        stages[0].copy_(self._begin_rates)
        self.clusters.slow(stages[0], self.begin, self.begin[:, D].exp())
        for s in range(1, _END):
            self._evaluate_stage(s)
        self.now.copy_(self.begin + self._step * self._sum(_END, _END))
        scale = self._torch.maximum(self.begin.abs(), self.now.abs()) * self._relative + self._absolute
        five, three = (((self._sum(row, _END) / scale) ** 2).sum(1) for row in _ERRORS)
        total = ((five + 0.01 * three) * (D + 1.0)).clamp(min=1e-300).sqrt()
        self._error.copy_((self._step * five / total).max())

    def _evaluate_stage(self, s: int) -> None:
        """Write the rates at stage s of the step, with clusters slowed."""
        Y = self.begin + self._step * self._sum(s, s)
        self._stages[s].copy_(self.field.rates(Y))
        self.clusters.slow(self._stages[s], Y, self.field.n)

    def _sum(self, row: int, count: int) -> Tensor:
        """Return Σ_j w_j k_j of the first `count` stages, with the weights of a row of the tableau."""
        stages = self._stages[:count].view(count, -1)
        total: Tensor = self._torch.mv(stages.t(), self._weights[row, :count]).view_as(self.now)
        return total

    def _settle(self, h: float) -> Array:
        """Put rows at the end of a step back on the sphere and clusters where they belong; return the events.

        Other rows are moved by the change of their rates at its end for `DISPLACED_SHARE` of the step.
        """
        self._normalise(self.now)
        self._look()
        earlier_rates = self.now_rates.clone()
        self.clusters.land(self.now, self.begin, earlier_rates, h, self._length_before)
        self._normalise(self.now)
        self._look()
        outside = 1.0 - self.clusters.inside
        self.now -= DISPLACED_SHARE * h * (earlier_rates - self.now_rates) * outside[:, None]
        self._normalise(self.now)
        return self._look()

    def _normalise(self, Y: Tensor) -> None:
        """Scale the unit vectors of a state (m, W) to length 1, in place."""
        U = Y[:, : self.field.D]
        U /= U.norm(dim=1, keepdim=True)

    def _look(self) -> Array:
        """Compute the rates at the present state and find the neurons near each direction; return the events."""
        self.now_rates.copy_(self.field.rates(self.now))
        self.clusters.look()
        self._evaluations += 1
        return self.field.events()

    # --- inside the last step ---------------------------------------------------------------------------------

    def _coefficients(self) -> Tensor:
        """Return the coefficients b_0 … b_6 of the polynomial inside the step, shape (7, m, W)."""
        if self._dense is None:
            stages, h = self._stages, self._length
            assert h is not None
            stages[_END].copy_(self.now_rates)
            self.clusters.slow(stages[_END], self.now, self.now[:, self.field.D].exp())
            for s in range(_END + 1, 16):
                self._evaluate_stage(s)
            self._evaluations += 3
            rise = self.now - self.begin
            low = rise, h * stages[0] - rise, 2.0 * rise - h * (stages[_END] + stages[0])
            dense: Tensor = self._torch.stack([*low, *(h * self._sum(row, 16) for row in _DENSE)])
            self._dense = dense
        return self._dense

    def _at(self, t: float) -> Tensor:
        """Return the state at a time within the last step, on the device."""
        check_inside(t, self._time_last, self._time)
        if t in (self._time_last, self._time):
            end: Tensor = self.now if t == self._time else self.begin
            return end
        Y: Tensor = self.begin + polynomial(self._coefficients(), (t - self._time_last) / (self._length or 1.0))
        self._normalise(Y)
        return Y

    def _events_at(self, directions: Integers, before: Array) -> Callable[[float], Array]:
        """Return a function of t with all event values: those of `directions` at t, the others as in `before`."""
        columns = self._tensor(np.append(directions, self.field.D))
        start = self.begin[:, columns].cpu().numpy()
        coefficients = self._coefficients()[:, :, columns].cpu().numpy()
        values, P, begun, length = before.copy(), self._a.size, self._time_last, self._length or 1.0

        def values_at(t: float) -> Array:
            """Return the values of all 2 P events at a time t in the step, in one array that every call overwrites.

            Entry p is max_i C_ip² minus the level of emergence, entry P + p the learned mass of direction p minus the
            share of its coefficient at which it is learned; other directions than the asked ones keep the values of
            `before`.
            """
            y = start + polynomial(coefficients, (t - begun) / length)
            C, n = y[:, :-1], np.exp(y[:, -1])
            values[directions], values[P + directions] = events_of_directions(
                self._part, self._a[directions], C, n, sign_matters=self.field.sign_matters, level=self.field.level
            )
            return values

        return values_at

    def _overlaps(self, Y: Tensor, G: Tensor, out: Array | None = None) -> Array:
        """Return [C | G | ln n], of rows [U | ln n] or of their rates, as one array of the host."""
        parts = Y[:, : self._a.size].reshape(-1), G.reshape(-1), Y[:, self.field.D]
        state: Array = self._torch.cat(parts).cpu().numpy()
        if out is None:
            return state
        out[...] = state
        return out
