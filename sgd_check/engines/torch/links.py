"""Links on tensors: σ, σ' and 2σ − zσ' as torch operations, of low powers, of programs or of tables."""

from __future__ import annotations

import numpy as np
import torch

from hermite import HermiteExpansion
from hermite.arrays import Array
from hermite.piecewise import PIECE_WIDTH, TABLE_END
from hermite.polynomials import differentiate, padded, trimmed
from sgd_check.engines import programs as p
from sgd_check.engines.problem_forms import in_powers, simulated_link
from sgd_check.engines.programs import formula_program, series_program

#: Names in torch of operations and of functions of sympy.
NAMES = {p.INVERSE: "reciprocal", p.ROOT: "sqrt", p.POWER: "pow", p.LARGER: "maximum", p.SMALLER: "minimum"}
# Above this degree the monomial form cancels in float32, and a program takes the recurrence.
MONOMIAL_DEGREE = 8


class TorchLink:
    """A link σ on tensors."""

    def both(self, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return σ(z) and σ'(z)."""
        raise NotImplementedError

    def value(self, z: torch.Tensor) -> torch.Tensor:
        """Return σ(z)."""
        return self.both(z)[0]

    def fill(self, z: torch.Tensor, out: torch.Tensor) -> None:
        """Write σ(z), 2σ(z) − zσ'(z) and σ'(z) to out[0], out[1] and out[2]."""
        sigma, double, slope = out.unbind(0)
        for values, row in zip(self.both(z), (sigma, slope), strict=True):
            row.copy_(values)
        torch.mul(z, slope, out=double).neg_().add_(sigma, alpha=2)


def make_link(
    expansion: HermiteExpansion, dtype: torch.dtype, device: torch.device, *, anywhere: bool = False, slope: bool = True
) -> tuple[TorchLink, str]:
    """Return the link in torch and one phrase that names it.

    A link without a formula is a Hermite series, which holds for arguments of unit variance alone, or with `anywhere` a
    table. Without `slope` only values are asked for, and a formula may have jumps.
    """
    return simulated_link(
        expansion,
        lambda c: _series_link(c, dtype, device),
        lambda expression: _ProgramLink(
            *(formula_program(expression, slope=with_slope) for with_slope in (False, slope))
        ),
        (lambda table: TableLink(torch.tensor(table, dtype=dtype, device=device))) if anywhere else None,
    )


def _series_link(coefficients: object, dtype: torch.dtype, device: torch.device) -> TorchLink:
    """Return the link of a Hermite series: in powers of z at low degree, else as a program."""
    c = np.array(trimmed(np.asarray(coefficients)))
    if c.size - 1 <= MONOMIAL_DEGREE:
        return _MonomialLink(in_powers(c), dtype, device)
    return _ProgramLink(series_program(c), series_program(c, padded(differentiate(c), c.size)))


class _MonomialLink(TorchLink):
    """Low-degree polynomial Σ_k c_k z^k by Horner's rule, the three functions in one pass."""

    def __init__(self, c: Array, dtype: torch.dtype, device: torch.device) -> None:
        k = np.arange(float(c.size))
        rows = np.array([c, (2.0 - k) * c, np.append((k * c)[1:], 0.0)])
        self._stack = [torch.tensor(col, dtype=dtype, device=device).reshape(3, 1, 1, 1) for col in rows.T[::-1]]
        self._powers: list[float] = c[::-1].tolist()

    def value(self, z: torch.Tensor) -> torch.Tensor:
        """Return σ(z) by Horner's rule, in the shape of z."""
        out = torch.full_like(z, self._powers[0])
        for coefficient in self._powers[1:]:
            out.mul_(z).add_(coefficient)
        return out

    def fill(self, z: torch.Tensor, out: torch.Tensor) -> None:
        """Write the stacked functions of the link at z to `out`, by Horner's rule."""
        torch.addcmul(self._stack[1], self._stack[0], z, out=out)
        for coefficient in self._stack[2:]:
            torch.addcmul(coefficient, out, z, out=out)


class _ProgramLink(TorchLink):
    """A link by two programs, of σ, and of σ and σ', see `sgd_check.engines.programs`."""

    def __init__(self, value: list[float], both: list[float]) -> None:
        self._value, self._both = value, both

    def value(self, z: torch.Tensor) -> torch.Tensor:
        """Return σ(z), in the shape of z."""
        return _run(self._value, z)[0]

    def both(self, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return σ(z) and σ'(z), in the shape of z."""
        return _run(self._both, z)


def _run(program: list[float], z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the two results of a program for inputs z, each in the shape of z."""
    registers = [z] * int(program[p.REGISTERS])
    for place in range(p.HEAD, len(program), p.WIDTH):
        code, to, left, right = map(int, program[place : place + 4])
        registers[to] = _operated(code, registers[left], registers[right], *program[place + 4 : place + p.WIDTH])
    return registers[int(program[p.FIRST])], registers[int(program[p.SECOND])]


def _operated(code: int, x: torch.Tensor, y: torch.Tensor, a: float, b: float) -> torch.Tensor:
    """Return the result of operation `code` on x and y, with its numbers a and b, in the shape of x."""
    if code == p.NUMBER:
        return torch.full_like(x, a)
    result: torch.Tensor
    if code == p.LINE:
        result = x * a
    elif code == p.SUM:
        result = torch.add(x, y, alpha=a)
    elif code == p.PRODUCT:
        result = x * y if a == 1.0 else x * y * a
    else:
        name = p.FUNCTIONS[code - p.ABSOLUTE].lower() if code >= p.ABSOLUTE else NAMES[code]
        result = getattr(torch, name)(*(x, y)[: p.READS.get(code, 1)])
    return result.add_(b) if b else result


class TableLink(TorchLink):
    """A link by its table, see `tabulated`; beyond its ends the tangent there."""

    def __init__(self, table: torch.Tensor) -> None:
        self._columns = table.T.contiguous().unbind(0)

    def both(self, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return σ(z) and σ'(z) by the piece of the table in which z lies, by the tangent beyond its ends."""
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
