r"""The field of unit vectors on a device: the equations of `dynamics.equations.field` as torch operations.

A state is one matrix Y (m, W): unit vectors in the first D columns, ln n in column D, then at least one column of zeros
up to a multiple of eight, so that rows are aligned and one operation moves directions and norms together.  Its rates:

.. math:: u_i' = F_i - \frac{F_i \cdot u_i}{u_i \cdot u_i} u_i, \qquad (\ln n_i)' = 4\, \text{growth}_i
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from hermite.arrays import Array

_ALIGNMENT = 8


def padded(columns: int) -> int:
    """Return the number of columns W of a state with D = `columns`."""
    return -(-(columns + 2) // _ALIGNMENT) * _ALIGNMENT


class DeviceField:
    """Evaluates the field of m neurons in R^D, the directions being the first P axes; work space is allocated once.

    With `sign_matters` only C > 0 counts as emergence.
    """

    def __init__(
        self,
        torch: Any,
        device: Any,
        coefficients: Array,
        a: Array,
        m: int,
        D: int,
        *,
        sign_matters: bool,
    ) -> None:
        self._torch = torch
        P = self._P = a.size
        self._m, self._D, self._sign_matters = m, D, sign_matters
        weights = [float(c) ** 2 for c in coefficients]

        def empty(*shape: int) -> Tensor:
            tensor: Tensor = torch.empty(shape, dtype=torch.float64, device=device)
            return tensor

        self._g0 = _Polynomial(torch, device, weights)
        self._g1 = _Polynomial(torch, device, [j * w for j, w in enumerate(weights)][1:])
        self._value = sum(weights)
        #: Overlaps with all neurons and directions [G | C], and their g; n of the neurons.
        self.overlap, self.kernel = empty(m, m + P), empty(m, m + P)
        self._square, self._force = empty(m, m + P), empty(m, m + P)
        #: Strength of every source: −n of the neurons, a of the directions.
        self._strength = empty(m + P)
        self._strength[m:] = torch.from_numpy(a)
        self.n, self._growth, self._radial = empty(m), empty(m), empty(m)
        self._product = empty(m, D)
        self._half = 0.5 * torch.from_numpy(a).to(device)

    def rates(self, Y: Tensor, out: Tensor) -> None:
        """Write the rates [u' | (ln n)'] of a state; leave n, [G | C] and g of that in `n`, `overlap`, `kernel`."""
        torch, m, D = self._torch, self._m, self._D
        U, F, P = Y[:, :D], out[:, :D], self._P
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
        torch, m = self._torch, self._m
        C = self.overlap[:, m:]
        size = C.clamp(min=0.0) if self._sign_matters else C
        largest = (size * size).amax(0) - 0.5
        mass = torch.mv(self.kernel[:, m:].t(), self.n) / self._value - self._half
        tensor: Tensor = torch.cat([largest, mass])
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
