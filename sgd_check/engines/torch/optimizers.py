"""Steps along a gradient of the weights in R^d: one class for each optimizer of `dynamics.problem`.

Weights are tensors (lanes, m, columns): d columns, of a network two more for v and b, so that an optimizer moves one
tensor. Learning rates ε of the layers multiply the step of their columns, which has a meaning under Adam too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from dynamics.problem import Problem, Student, is_frame, is_network, is_spherical
from dynamics.problem import optimizers as values
from hermite.text.messages import require
from sgd_check.engines.problem_forms import check_smoothing
from sgd_check.engines.registry import EngineOptions
from sgd_check.engines.seeded_runs import check_shapes
from sgd_check.engines.torch.neurons import Neurons
from sgd_check.engines.torch.samples import FreshDirections, Source

#: Numbers m·(samples) of one pass on the processor, which bounds the memory of a run; shorter passes cost more calls.
PASS_NUMBERS = 2**18


class WeightRuns:
    """Runs of plain SGD side by side in one tensor: weights (lanes, m, columns), moved on batches of B samples.

    Another optimizer is a class with another `move` or `pull`, see `STEPS`.
    """

    #: Number of arrays of the size of the weights that the steps keep, without an average.
    arrays = 0

    def __init__(
        self, neurons: Neurons, weights: torch.Tensor, source: Source, options: EngineOptions, z: FreshDirections | None
    ) -> None:
        """Begin steps from `weights` (lanes, m, columns), which are moved in place, on the samples of `source`.

        `neurons` compute gradients; `options` give optimizer and batch size; `z` are random directions for zeroth-order
        steps, None for others. The optimizer has `arrays` of the size of the weights, 0 at first.
        """
        self.weights, self.source, self.directions = weights, source, z
        #: Memory for a gradient.
        self.memory = torch.empty_like(weights)
        #: Average of the weights (lanes, m, columns), None if the optimizer keeps none.
        self.average = weights.clone() if values.keeps_average(options.optimizer) else None
        self._neurons, self._batch, self._steps = neurons, options.batch_size, 0
        self._optimizer: Any = options.optimizer
        self._kept = [torch.zeros_like(weights) for _ in range(self.arrays)]
        # On a CUDA device one pass takes the whole batch: there is no cache to keep to, and a launch costs more.
        self._largest = max(PASS_NUMBERS // weights.shape[1], 1) if weights.device.type == "cpu" else None
        self._passes = self._passes_of(self._batch)

    def enter(self, neurons: Neurons) -> None:
        """Go on with neurons of other rates."""
        self._neurons = neurons

    def advance(self, rates: list[float]) -> None:
        """Take one step per learning rate η."""
        for rate in rates:
            self.move(self.pull(*self.source.batch()), rate)
            self._neurons.put_back(self.weights)

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return weights, what the optimizer keeps of earlier steps, the average, and the number of steps."""
        kept = {f"kept_{at}": array.cpu().numpy().copy() for at, array in enumerate(self._kept)}
        average = {} if self.average is None else {"average": self.average.cpu().numpy().copy()}
        return {"weights": self.weights.cpu().numpy().copy(), "steps": np.array([self._steps])} | kept | average

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Go on from the arrays that `state` returned; raise ValueError if they have other shapes."""
        arrays = {"weights": self.weights} | {f"kept_{at}": array for at, array in enumerate(self._kept)}
        arrays |= {} if self.average is None else {"average": self.average}
        check_shapes(state, arrays)
        for name, array in arrays.items():
            array.copy_(torch.from_numpy(np.array(state[name])))
        self._steps = int(state["steps"][0])

    def pull(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the direction against which a step goes, in `memory`: the mean gradient over a batch, and decay.

        x (lanes, B, d) are the samples and `labels` (lanes, B) theirs. The result has the shape of the weights. Before
        decay is added, `Neurons.restrict` applies the metric and removes parts along which weights may not move.
        """
        gradient = self.gradient(x, labels)
        self._neurons.restrict(self.weights, gradient)
        self._neurons.add_decay(self.weights, gradient)
        return gradient

    def move(self, gradient: torch.Tensor, rate: float) -> None:
        """Take one step at the learning rate η along a gradient, and overwrite it."""
        self._neurons.step(self.weights, gradient, rate)

    def gradient(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean gradient over a batch, in `memory`."""
        gradient = self.memory.zero_()
        for chosen in self._passes:
            self._neurons.add_gradient(self.weights, x[:, chosen], labels[:, chosen], gradient)
        if self._batch > 1:
            gradient.div_(self._batch)
        return gradient

    def loss(self, w: torch.Tensor, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return ½ mean e² (lanes,) over samples x (lanes, B, d), at other weights."""
        count = x.shape[1]
        passes = self._passes_of(count)
        parts = [torch.sum((self._neurons.predict(w, x[:, c]) - labels[:, c]) ** 2, dim=1) for c in passes]
        return torch.stack(parts).sum(dim=0).div_(2.0 * count)

    def _passes_of(self, count: int) -> list[slice]:
        """Return the slices of `count` samples that are processed one after the other."""
        largest = self._largest or count
        return [slice(first, min(first + largest, count)) for first in range(0, count, largest)]


class _Sgd(WeightRuns):
    """u ← β u + (1 − δ) g, u = g in the first step; w ← w − η u, or w − η (g + β u); a ← a + α (w − a)."""

    arrays = 1

    def move(self, gradient: torch.Tensor, rate: float) -> None:
        """Take one step of SGD with momentum or averages; the gradient may be overwritten."""
        optimizer, (velocity,), average = self._optimizer, self._kept, self.average
        new = 1.0 - optimizer.dampening if self._steps else 1.0
        velocity.mul_(optimizer.momentum).add_(gradient, alpha=new)
        along = gradient.add_(velocity, alpha=optimizer.momentum) if optimizer.nesterov else velocity
        self._neurons.step(self.weights, along, rate)
        if average is not None:
            weight = 1.0 / (self._steps + 2) if optimizer.average == "polyak" else optimizer.average
            average.lerp_(self.weights, weight)
        self._steps += 1


class _Adam(WeightRuns):
    """Adam and, with β1 = 0, RMSprop, with bias correction and ε = 0: where v = 0, no step is taken."""

    arrays = 3

    def move(self, gradient: torch.Tensor, rate: float) -> None:
        """Take one step of Adam, with its correction of the bias at the start; the gradient is overwritten."""
        beta1, beta2, (mean, square, root) = self._optimizer.beta1, self._optimizer.beta2, self._kept
        self._steps += 1
        mean.lerp_(gradient, 1.0 - beta1)
        square.mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)
        torch.sqrt(square, out=root)
        along = torch.div(mean, root, out=gradient).masked_fill_(root == 0.0, 0.0)
        root_of_bias = (1.0 - beta2**self._steps) ** 0.5
        self._neurons.step(self.weights, along, rate * root_of_bias / (1.0 - beta1**self._steps))


class _SignSgd(WeightRuns):
    def move(self, gradient: torch.Tensor, rate: float) -> None:
        """Take one step along the signs of the gradient, which is overwritten by them."""
        self._neurons.step(self.weights, gradient.sign_(), rate)


class _ZerothOrder(WeightRuns):
    """g = (1/K) Σ_k q_k z_k over all that is trained, with K directions z_k ~ N(0, I) that a batch shares.

    q_k = z_k·∇ℓ in the limit ε → 0, else [ℓ(w + εz_k) − ℓ(w − εz_k)]/(2ε), ε = λ/√d, ℓ = ½ MSE of the batch.
    """

    def pull(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the estimate g of the mean gradient from K random directions, plus the decay, in `memory`.

        x (lanes, B, d) are the samples and `labels` (lanes, B) theirs; the result has the shape of the weights. The
        decay is exact, not estimated along the directions.
        """
        z, size = cast("FreshDirections", self.directions).step(), self._optimizer.smoothing / x.shape[2] ** 0.5

        def quotient(z: torch.Tensor) -> torch.Tensor:
            """Return (ℓ(w + ε z) − ℓ(w − ε z))/(2 ε), the difference quotient of the loss along z, (lanes,)."""
            above = self.loss(torch.add(self.weights, z, alpha=size, out=self.memory), x, labels)
            below = self.loss(torch.add(self.weights, z, alpha=-size, out=self.memory), x, labels)
            return above.sub_(below).div_(2.0 * size)

        if size:
            quotients = [quotient(direction.view_as(self.weights)) for direction in z.unbind(1)]
            along = torch.stack(quotients, dim=1)[:, None]
        else:
            along = torch.bmm(self.gradient(x, labels).flatten(1)[:, None], z.transpose(1, 2))
        torch.bmm(along, z, out=self.memory.view(len(z), 1, -1))
        gradient = self.memory.div_(z.shape[1])
        self._neurons.add_decay(self.weights, gradient)
        return gradient


#: Runs under optimizers other than plain SGD.
STEPS = {
    values.SGD: _Sgd,
    values.Adam: _Adam,
    values.RMSprop: _Adam,
    values.SignSGD: _SignSgd,
    values.ZerothOrder: _ZerothOrder,
}


def check_optimizer(problem: Problem, options: EngineOptions) -> None:
    """Raise ValueError for problems and batches for which the optimizer is not defined."""
    optimizer = options.optimizer
    if optimizer.is_plain:
        return
    student = cast("Student", problem.student) if is_network(problem) else None
    on_sphere = is_frame(problem) or is_spherical(problem) or (student and student.first_layer == "sphere")
    require(
        not on_sphere,
        "Argument `optimizer` must be plain SGD for neurons that keep their length, since what other optimizers keep "
        f"or draw is not tangent to the sphere any more once neurons are brought back to it, but is {optimizer}.",
    )
    if isinstance(optimizer, values.ZerothOrder):
        check_smoothing(optimizer, options.dtype)
    if optimizer.sees_axes:
        values.check_dense(optimizer, problem, options.batch_size)
        decay = student.decay if student else ()
        require(
            not any(decay),
            f"Argument `problem` must have a student without decay for {optimizer}, which would scale it as a gradient,"
            f" but has {decay}.",
        )
