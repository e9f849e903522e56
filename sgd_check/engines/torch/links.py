"""Links on tensors: σ, σ' and 2σ − zσ' as torch operations, from Hermite coefficients or from a formula."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from sgd_check.engines import programs as p
from sgd_check.engines.problem_forms import PIECE_WIDTH, TABLE_END, in_powers, simulated_link
from sgd_check.engines.programs import formula_program

if TYPE_CHECKING:
    from hermite import HermiteExpansion
    from hermite.arrays import Array

#: Names in torch of operations, beside functions of sympy.
NAMES = {p.INVERSE: "reciprocal", p.ROOT: "sqrt", p.POWER: "pow", p.LARGER: "maximum", p.SMALLER: "minimum"}
# Above this degree the monomial form cancels in float32, and the recurrence is used in its place.
MONOMIAL_DEGREE = 8


class TorchLink(Protocol):
    """A link σ on tensors."""

    def value(self, z: torch.Tensor) -> torch.Tensor:
        """Return σ(z)."""

    def fill(self, z: torch.Tensor, out: torch.Tensor) -> None:
        """Write σ(z), 2σ(z) − zσ'(z) and σ'(z) to out[0], out[1] and out[2]."""

    def fill_ends(self, z: torch.Tensor, out: torch.Tensor) -> None:
        """Write σ(z) to out[0] and σ'(z) to out[2], and anything to out[1]."""
        self.fill(z, out)


def make_link(
    expansion: HermiteExpansion, dtype: torch.dtype, device: torch.device, *, anywhere: bool = False, slope: bool = True
) -> tuple[TorchLink, str]:
    """Return the link in torch and one phrase that names it, see `simulated_link`.

    `anywhere` as that of a network. Without `slope` its value alone is of use, and a formula may have jumps.
    """
    return simulated_link(
        expansion,
        lambda c: _series_link(c, dtype, device),
        lambda expression: FormulaLink(expression, slope=slope),
        (lambda table: TableLink(torch.tensor(table, dtype=dtype, device=device))) if anywhere else None,
    )


def _series_link(coefficients: Any, dtype: torch.dtype, device: torch.device) -> TorchLink:
    c = np.trim_zeros(np.array(coefficients, dtype=np.float64), "b")
    form = _MonomialLink if c.size - 1 <= MONOMIAL_DEGREE else _RecurrenceLink
    return form(three_rows(c), dtype, device)


def three_rows(c: Array) -> Array:
    """Return the Hermite coefficients of σ, 2σ − zσ' and σ' as rows, shape (3, degree + 1).

    From h_j' = √j h_{j−1} and z h_j = √(j+1) h_{j+1} + √j h_{j−1}.
    """
    j = np.arange(c.size, dtype=np.float64)
    slope = np.zeros(c.size)
    slope[:-1] = np.sqrt(j[1:]) * c[1:]
    times_z = np.zeros(c.size)
    times_z[1:] += np.sqrt(j[1:]) * slope[:-1]
    times_z[:-1] += np.sqrt(j[1:]) * slope[1:]
    return np.stack([c, 2.0 * c - times_z, slope])


def _horner(coefficients: list[float], z: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Return the polynomial with these coefficients, highest power first, in `out`; an empty one is 0."""
    if len(coefficients) < 2:
        return out.fill_(coefficients[0] if coefficients else 0.0)
    torch.mul(z, coefficients[0], out=out)
    for coefficient in coefficients[1:-1]:
        out.add_(coefficient).mul_(z)
    return out.add_(coefficients[-1])


class _MonomialLink(TorchLink):
    """Low-degree polynomial by Horner's rule, the three functions in one pass."""

    def __init__(self, rows: Array, dtype: torch.dtype, device: torch.device) -> None:
        powers = in_powers(rows)
        self._stack = [torch.tensor(col, dtype=dtype, device=device).reshape(3, 1, 1, 1) for col in powers.T[::-1]]
        self._sigma = [float(v) for v in powers[0, ::-1]]
        self._slope = [float(v) for v in powers[2, -2::-1]]

    def value(self, z: torch.Tensor) -> torch.Tensor:
        return _horner(self._sigma, z, torch.empty_like(z))

    def fill_ends(self, z: torch.Tensor, out: torch.Tensor) -> None:
        # A link with a parity takes half the passes, in z².
        value, square, slope = out.unbind(0)
        if any(self._sigma[1::2]):
            _horner(self._sigma, z, value)
            _horner(self._slope, z, slope)
            return
        torch.mul(z, z, out=square)
        _horner(self._sigma[::2], square, value)
        _horner(self._slope[::2], square, slope)
        # Powers go down from the degree in steps of two, so that one of the two ends with z instead of 1.
        odd = value if len(self._sigma) % 2 == 0 else slope
        odd.mul_(z)

    def fill(self, z: torch.Tensor, out: torch.Tensor) -> None:
        torch.addcmul(self._stack[1], self._stack[0], z, out=out)
        for coefficient in self._stack[2:]:
            torch.addcmul(coefficient, out, z, out=out)


class _RecurrenceLink(TorchLink):
    """Polynomial of any degree by the recurrence h_{j+1} = (z h_j − √j h_{j−1})/√(j+1), stable to degree 300."""

    def __init__(self, rows: Array, dtype: torch.dtype, device: torch.device) -> None:
        self._columns = [torch.tensor(col, dtype=dtype, device=device).reshape(3, 1, 1, 1) for col in rows.T]
        self._nonzero: list[bool] = [bool(column.any()) for column in rows.T]
        self._sigma = [float(v) for v in rows[0]]

    def value(self, z: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(z)
        for c, h in zip(self._sigma, self._table(z), strict=False):
            if c != 0.0:
                total.add_(h, alpha=c)
        return total

    def fill(self, z: torch.Tensor, out: torch.Tensor) -> None:
        out.zero_()
        for used, column, h in zip(self._nonzero, self._columns, self._table(z), strict=False):
            if used:
                out.addcmul_(column, h)

    def _table(self, z: torch.Tensor) -> Any:
        before, now = torch.zeros_like(z), torch.ones_like(z)
        for j in range(len(self._sigma)):
            yield now
            before, now = now, (z * now).sub_(before, alpha=j**0.5).div_((j + 1) ** 0.5)


class _PairLink(TorchLink):
    """A link that gives σ and σ' together."""

    def both(self, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return σ(z) and σ'(z)."""
        raise NotImplementedError

    def value(self, z: torch.Tensor) -> torch.Tensor:
        """Return σ(z)."""
        return self.both(z)[0]

    def fill(self, z: torch.Tensor, out: torch.Tensor) -> None:
        """Write σ(z), 2σ(z) − zσ'(z) and σ'(z) to the rows of `out`."""
        sigma, double, slope = out.unbind(0)
        for found, row in zip(self.both(z), (sigma, slope), strict=True):
            row.copy_(found)
        torch.mul(z, slope, out=double).neg_().add_(sigma, alpha=2)


class FormulaLink(_PairLink):
    """A sympy formula in one real variable and its derivative, by the operations of its program.

    Without `slope`, as of a formula whose derivative does not exist, its value alone is of use.
    """

    def __init__(self, expression: Any, *, slope: bool = True) -> None:
        self._value, self._both = (formula_program(expression, slope=wanted) for wanted in (False, slope))

    def value(self, z: torch.Tensor) -> torch.Tensor:
        """Return σ(z)."""
        return _run(self._value, z)[0]

    def both(self, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return σ(z) and σ'(z)."""
        return _run(self._both, z)


def _run(program: list[float], z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both results of a program, see `sgd_check.engines.programs`."""
    registers = [z] * int(program[p.REGISTERS])
    for at in range(p.HEAD, len(program), p.WIDTH):
        code, to, left, right = map(int, program[at : at + 4])
        registers[to] = _operated(code, registers[left], registers[right], *program[at + 4 : at + p.WIDTH])
    return registers[int(program[p.FIRST])], registers[int(program[p.SECOND])]


def _operated(code: int, x: torch.Tensor, y: torch.Tensor, a: float, b: float) -> torch.Tensor:
    """Return the result of one operation."""
    if code == p.NUMBER:
        return torch.full_like(x, a)
    found: torch.Tensor
    if code == p.LINE:
        found = x * a
    elif code == p.SUM:
        found = torch.add(x, y, alpha=a)
    elif code == p.PRODUCT:
        found = x * y if a == 1.0 else x * y * a
    else:
        name = p.FUNCTIONS[code - p.ABSOLUTE].lower() if code >= p.ABSOLUTE else NAMES[code]
        found = getattr(torch, name)(*(x, y)[: p.READS.get(code, 1)])
    return found.add_(b) if b else found


class TableLink(_PairLink):
    """A link by its table, see `tabulated`; beyond its ends the tangent there."""

    def __init__(self, table: torch.Tensor) -> None:
        self._columns = table.T.contiguous().unbind(0)

    def both(self, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return σ(z) and σ'(z)."""
        inside = z.clamp(-TABLE_END, TABLE_END)
        scaled = (inside + TABLE_END) / PIECE_WIDTH
        piece = scaled.long().clamp_(0, self._columns[0].numel() - 1)
        u = 2.0 * (scaled - piece) - 1.0
        value, slope = torch.take(self._columns[-1], piece), torch.zeros_like(z)
        for column in self._columns[-2::-1]:
            slope = slope.mul_(u).add_(value)
            value = value.mul(u).add_(torch.take(column, piece))
        slope.mul_(2.0 / PIECE_WIDTH)
        return value.addcmul_(slope, z - inside), slope
