"""Slowed clusters on a device: the tests and the hysteresis of `division`, for all directions at once.

Every direction has its place in tensors of fixed shape, whether it has a cluster or not, so that no decision has to
wait for the host and a step is the same sequence of operations whatever the clusters are.  All other neurons are alike:
with the whole field computed at every stage there are no fast sources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dynamics.integrators.clusters import DISTANCE, GROUP, LEAVE_DISTANCE, LEAVE_STILL, MASS, STILL

if TYPE_CHECKING:
    from torch import Tensor


class DeviceClusters:
    """Divides neurons into clusters, step after step, and slows their mean velocities.

    `cluster` (m,) is the direction of the cluster of each neuron, P for none, `sign` (m,) the pole at which it sits, +1
    or −1, and `drift` (P, W) the mean velocity of each cluster over the last step. `value` and `slope` are g(1) and
    g'(1), `shape` is (m, D, W) as in `field`, and with `both_poles` a neuron at −θ_p is as good as one at θ_p, as it is
    for an even kernel. A slowed mode relaxes by e^(−κ) in a step.
    """

    def __init__(
        self,
        torch: Any,
        a: Tensor,
        value: float,
        slope: float,
        shape: tuple[int, int, int],
        *,
        both_poles: bool,
        kappa: float,
    ) -> None:
        self._torch = torch
        self._a, self._value, self._slope = a, value, slope
        self._P, (self._m, self._D, self._W) = a.numel(), shape
        self._both_poles, self._kappa = both_poles, kappa
        self._rates = torch.stack([a * slope, 4.0 * a * value], 1)
        m, P, W = self._m, self._P, self._W
        real, whole = {"dtype": torch.float64, "device": a.device}, {"dtype": torch.int64, "device": a.device}
        self.cluster, self.sign = torch.full((m,), P, **whole), torch.ones(m, **real)
        self.drift = torch.zeros(P, W, **real)
        # Read by `slow`: the members in order, the share of the mean velocity that is taken away.
        self._order, self._offsets = torch.arange(m, **whole), torch.zeros(P + 1, **whole)
        self._place, self._inside = torch.zeros(m, **whole), torch.zeros(m, **real)
        self._held = torch.zeros(P, W, **real)
        self._rows, self._turned = torch.empty(m, W, **real), torch.zeros(m, W, **real)
        self._product = torch.empty(m, self._D, **real)
        self._turning = 0.25 * slope / value
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

    def look(self, n: Tensor, overlap: Tensor, kernel: Tensor) -> None:
        """Find the neurons near each direction at a state of which n, [G | C] and g are given."""
        torch, m, P = self._torch, self._m, self._P
        C = overlap[:, m:]
        best, nearest = (C.abs() if self._both_poles else C.clamp(min=0.0)).max(1)
        here = torch.where(best**2 > GROUP, nearest, P)
        self._near.copy_(here)
        self._pole.copy_(torch.where(C.gather(1, nearest[:, None])[:, 0] < 0.0, -1.0, 1.0))
        # ‖Σ n σ(u·) − a σ(e·)‖² without a² g(1), as a sum over rows.
        together = kernel[:, :m] * (here[:, None] == here[None, :])
        pull = kernel[:, m:].gather(1, nearest[:, None])[:, 0] * self._a[nearest]
        self._share.copy_(n * (together @ n - 2.0 * pull))

    def divide(self, Y: Tensor, before: Tensor, rates: Tensor, h: Tensor) -> None:
        """Make the division for the next step at the state that `look` saw.

        `Y` and `before` (m, W) are the states now and one step, of length `h`, earlier; the same at the start. `rates`
        (m, W) are those now, with nothing slowed.
        """
        torch, a, D, P = self._torch, self._a, self._D, self._P
        n = torch.exp(Y[:, D])
        order, offsets = self._sorted(self._near)
        sums = self._sums(torch.stack([n, self._share], 1).index_select(0, order), offsets)
        mass, distance = sums[:, 0], a**2 * self._value + sums[:, 1]
        drift = self._means((Y - before) / h, n, self._pole, order, offsets)
        miss = self._means(rates, n, self._pole, order, offsets) - drift
        off_direction, off_norm = miss[:, :D].norm(dim=1), miss[:, D].abs()
        accepted = self._counts(self.cluster)[:P] > 0
        patience = torch.where(accepted, LEAVE_STILL, 1.0)
        passed = (
            ((mass - a).abs() <= MASS * a)
            & (distance <= DISTANCE * a**2 * self._value * torch.where(accepted, LEAVE_DISTANCE, 1.0))
            & (off_direction <= STILL * patience * a * self._slope)
            & (off_norm <= STILL * patience * 4.0 * a * self._value)
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
        held = 1.0 - (self._kappa / (h * self._rates)).clamp(max=1.0)
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
        torch.mul(U, (lean + self._turning * growth)[:, None], out=self._turned[:, :D])
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
        rate, follows = torch.empty_like(self._held), -torch.expm1(-(h * self._rates - self._kappa).clamp(min=0.0))
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
