"""Reading the tables of `dynamics.equations.network.series`.

A table begins with: whether biases are trained, the numbers of biases or their panels, of panels of ρ, of nodes in b
and in ρ, and of columns; then biases, edges in ρ, Chebyshev coefficients.
"""

import math

from dynamics.kernels.arrays import Vector
from dynamics.kernels.jit import kernel


@kernel
def panel_of(x: float, start: int, panels: int, numbers: Vector) -> int:
    """Return the panel between `panels` + 1 edges in which x lies, -1 if in none."""
    if not (numbers[start] <= x <= numbers[start + panels]):
        return -1
    panel = 0
    while x > numbers[start + panel + 1]:
        panel += 1
    return panel


@kernel
def place_of(x: float, start: int, count: int, numbers: Vector) -> int:
    """Return the place of a value in a list, up to rounding; -1 if it is not there."""
    for place in range(count):
        if abs(numbers[start + place] - x) <= 1e-12:
            return place
    return -1


@kernel
def inner_place(x: float, edge: int, numbers: Vector) -> float:
    """Return where x lies in a panel, from -1 to 1."""
    low, high = numbers[edge], numbers[edge + 1]
    return float((2.0 * x - low - high) / (high - low))


@kernel
def read_table(q: float, b: float, start: int, first: int, numbers: Vector, out: Vector) -> None:
    """Write columns of the table at `start`, from `first` - `start` on, at ρ = √q and b.

    They are not-a-number where the table does not reach.
    """
    count = out.size
    trained = numbers[start] > 0.0
    biases, panels = int(numbers[start + 1]), int(numbers[start + 2])
    nodes_b, nodes_q, columns = int(numbers[start + 3]), int(numbers[start + 4]), int(numbers[start + 5])
    edges_b = start + 6
    edges_q = edges_b + biases + (1 if trained else 0)
    length = math.sqrt(q)
    panel = panel_of(length, edges_q, panels, numbers)
    block = panel_of(b, edges_b, biases, numbers) if trained else place_of(b, edges_b, biases, numbers)
    for j in range(count):
        out[j] = 0.0 if panel >= 0 and block >= 0 else math.nan
    if panel < 0 or block < 0:
        return
    x = inner_place(length, edges_q + panel, numbers)
    y = inner_place(b, edges_b + block, numbers) if trained else 0.0
    place = edges_q + panels + 1 + (block * panels + panel) * nodes_b * nodes_q * columns + first - start
    along_b, next_b = 1.0, y
    for _ in range(nodes_b):
        along_q, next_q = along_b, along_b * x
        for _ in range(nodes_q):
            for j in range(count):
                out[j] += along_q * numbers[place + j]
            place += columns
            along_q, next_q = next_q, 2.0 * x * next_q - along_q
        along_b, next_b = next_b, 2.0 * y * next_b - along_b
