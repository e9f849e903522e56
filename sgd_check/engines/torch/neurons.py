"""The students of SGD on the weights in R^d: gradient, loss, and where neurons must lie.

Of a batch of B samples g_i is the mean of the gradient, in closed form. With e_b = f(x_b) − y_b the students are

* spherical, f = (1/m) Σ_i σ(w_i·x), |w_i| = 1: g_i = e σ'(w_i·x) x, m times the gradient of ½ e², less its part along
  w_i; then w_i ← w_i/|w_i|;
* committees, f = Σ_i σ(w_i·x): g_i = e σ'(w_i·x) x;
* homogeneous neurons on inputs of covariance Σ, in whitened weights ŵ = Σ^½ w and x = Σ^½ z, z ~ N(0, I): Σ times the
  gradient of isotropic inputs, g_i = Σ e ρ_i [(2σ − ζ_i σ') u_i + σ' z], ρ_i = |ŵ_i|, u_i = ŵ_i/ρ_i, ζ_i = u_i·z;
* networks, f = s Σ_i v_i σ(w_i·x + b_i), whose v_i and b_i are two more columns of the weights: the gradient of ½ e²,
  that of w_i times Σ in whitened weights, and with decay κ also κ/ε times what is moved at the learning rate η ε, or
  at η along its decay alone where ε = 0; under another loss, labels that are classes or a mixture `LossNetwork`, with
  a second layer for each of C outputs;
* frames of orthogonal neurons, with U = W/σ0 and z = Ux: g = √2 e z (x − Uᵀz)ᵀ, the tangential part of the gradient;
  then the polar factor of where it leads, U ← (YYᵀ)^(−½) Y, by an eigendecomposition.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch

from dynamics.problem import Problem, is_frame, is_homogeneous, is_network, is_spherical, needs_points
from sgd_check.engines import problem_forms
from sgd_check.engines.problem_forms import network_of
from sgd_check.engines.torch.links import TorchLink
from sgd_check.engines.torch.losses import slope_of_loss


class Neurons(ABC):
    """A kind of student: its gradient, and the set on which its weights must lie."""

    #: |w|² of the neurons whose directions are the weights, None where these are the neurons.
    squared: float | None = None
    #: Eigenvalue of Σ of each column of whitened weights, 1 of other columns, 0 of those that are fixed; None if all 1.
    metric: torch.Tensor | None = None

    def __init__(self, link: TorchLink) -> None:
        self._link = link
        self._numbers = torch.empty(0)

    @abstractmethod
    def add_gradient(self, w: torch.Tensor, x: torch.Tensor, labels: torch.Tensor, out: torch.Tensor) -> None:
        """Add the gradient of Σ_b ½ (f(x_b) − y_b)² in the weights, a sum over B samples, to `out`.

        A lane is a run. The weights w and `out` have shape (lanes, m, columns), the samples x (lanes, B, d) and their
        `labels` y (lanes, B). Another loss, where the student has one, replaces half the squared error.
        """

    @abstractmethod
    def predict(self, w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return the outputs f (lanes, B) of the students on samples x (lanes, B, d).

        w (lanes, m, columns) are the weights.
        """

    def restrict(self, w: torch.Tensor, gradient: torch.Tensor) -> None:  # noqa: ARG002 (others need where they are)
        """Multiply the gradient by `metric`, column by column, if there is one, in place; w are the weights.

        Students of kept length also remove the part of the gradient that must not move the weights.
        """
        if self.metric is not None:
            gradient.mul_(self.metric)

    def add_decay(self, w: torch.Tensor, gradient: torch.Tensor) -> None:  # noqa: B027 (networks alone decay)
        """Add the gradient of weight decay."""

    def step(self, w: torch.Tensor, direction: torch.Tensor, rate: float) -> None:
        """Subtract `rate` (η) times the direction from the weights w, in place; both are (lanes, m, columns)."""
        w.sub_(direction, alpha=rate)

    def put_back(self, w: torch.Tensor) -> None:  # noqa: B027 (free neurons need none)
        """Bring the weights back to where they must lie."""

    def _link_at(self, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return σ, 2σ − zσ' and σ' at z, in memory that the next call takes."""
        if self._numbers.shape[1:] != z.shape:
            self._numbers = z.new_empty(3, *z.shape)
        self._link.fill(z, self._numbers)
        return self._numbers.unbind(0)


class _Committee(Neurons):
    """The student f(x) = Σ_i σ(w_i·x), whose second layer is fixed."""

    def add_gradient(self, w: torch.Tensor, x: torch.Tensor, labels: torch.Tensor, out: torch.Tensor) -> None:
        """Add Σ_b e_b σ'(w_i·x_b) x_b to row i of `out`, with the error e_b = f(x_b) − y_b of sample b."""
        value, _, slope = self._link_at(torch.bmm(w, x.transpose(1, 2)))
        error = self.output(value).sub_(labels)
        out.baddbmm_(slope.mul_(error[:, None]), x)

    def output(self, value: torch.Tensor) -> torch.Tensor:
        """Return f (lanes, B) of σ_ib (lanes, m, B)."""
        return torch.sum(value, dim=1)

    def predict(self, w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return the outputs of the committee on x."""
        return self.output(self._link.value(torch.bmm(w, x.transpose(1, 2))))


class _Spherical(_Committee):
    """The student f(x) = Σ_i σ(w_i·x)/m with neurons of length 1."""

    squared = 1.0

    def output(self, value: torch.Tensor) -> torch.Tensor:
        """Return the mean of the neurons' values, the output of a spherical network."""
        return torch.mean(value, dim=1)

    def restrict(self, w: torch.Tensor, gradient: torch.Tensor) -> None:
        """Remove from the gradient of each neuron its part along the neuron, in place."""
        gradient.addcmul_(torch.sum(gradient * w, dim=2, keepdim=True), w, value=-1)

    def put_back(self, w: torch.Tensor) -> None:
        """Scale the neurons to length 1, in place."""
        w.div_(torch.linalg.vector_norm(w, dim=2, keepdim=True))


class _Homogeneous(Neurons):
    """The student f(x) = Σ_i |w_i|² σ(w_i·x/|w_i|); `eigenvalues` (d,) are those of the inputs, None if isotropic."""

    def __init__(self, link: TorchLink, eigenvalues: torch.Tensor | None) -> None:
        super().__init__(link)
        self.metric = eigenvalues

    def add_gradient(self, w: torch.Tensor, x: torch.Tensor, labels: torch.Tensor, out: torch.Tensor) -> None:
        """Add the gradient of Σ_b ½ e_b², with errors e_b = f(x_b) − y_b, to `out`; f(x) = Σ_i |w_i|² σ(w_i·x/|w_i|).

        With z = w_i·x/|w_i|, row i gets Σ_b e_b [(2σ(z) − zσ'(z)) w_i + |w_i| σ'(z) x_b].
        """
        rho = torch.linalg.vector_norm(w, dim=2, keepdim=True)
        value, double, slope = self._link_at(torch.bmm(w, x.transpose(1, 2)) / rho)
        error = (torch.sum(rho * rho * value, dim=1) - labels)[:, None]
        out.addcmul_(torch.sum(double.mul_(error), dim=2, keepdim=True), w)
        out.baddbmm_(slope.mul_(rho).mul_(error), x)

    def predict(self, w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return Σ_i |w_i|² σ(w_i·x/|w_i|) on x."""
        rho = torch.linalg.vector_norm(w, dim=2, keepdim=True)
        return torch.sum(rho * rho * self._link.value(torch.bmm(w, x.transpose(1, 2)) / rho), dim=1)


class _Network(Neurons):
    """The student f(x) = s Σ_i v_i σ(w_i·x + b_i), with v and b in the last two columns of the weights."""

    def __init__(
        self,
        link: TorchLink,
        network: problem_forms.Network,
        eigenvalues: torch.Tensor | None,
        like: torch.Tensor,
        outputs: int = 1,
    ) -> None:
        """Spread rates, decay and metric of each layer over the columns of the weights, (columns,) each.

        Columns are those of the first layer, then `outputs` of the second layer, then the bias; `like` is a tensor of
        weights (…, columns) with their dtype and device. Rates of layers that only decay are 1, and `metric` is 1 for
        layers that are trained, else 0, times the inputs' `eigenvalues`, if given, for the first layer.
        """
        super().__init__(link)
        self._scale, self._trained = network.scale, [rate > 0 for rate in network.rates]
        #: Columns of the first layer, those before V and b.
        self._inner = like.shape[2] - outputs - 1
        decays = (*network.decay, 0.0)
        rates = [rate or float(decay > 0) for rate, decay in zip(network.rates, decays, strict=True)]
        counts = torch.tensor([self._inner, outputs, 1], device=like.device)

        def columns(values: list[float]) -> torch.Tensor:
            return torch.tensor(values, dtype=like.dtype, device=like.device).repeat_interleave(counts)

        self._rates = columns(rates)
        self._decay = columns([decay / (rate or 1.0) for rate, decay in zip(rates, decays, strict=True)])
        self._decays = any(decays)
        self._lengths = None if network.lengths is None else torch.from_numpy(network.lengths).to(like)[:, None]
        self.metric = columns(list(map(float, self._trained)))
        if eigenvalues is not None:
            self.metric[: self._inner] *= eigenvalues

    def add_gradient(self, w: torch.Tensor, x: torch.Tensor, labels: torch.Tensor, out: torch.Tensor) -> None:
        """Add the gradient of Σ_b ½ e_b² to `out`, only in the layers that are trained.

        The columns of w and of `out` are first those of the weights w_i of the first layer, then one with the second
        layer v, then one with the biases b. With the scale s of the output and the error e_b of sample b, and σ and σ'
        at w_i·x_b + b_i, they get s Σ_b e_b v_i σ' x_b, s Σ_b e_b σ and s Σ_b e_b v_i σ'.
        """
        v, b, (of_w, of_v, of_b) = w[:, :, -2:-1], w[:, :, -1:], self._trained
        value, product, slope = self._link_at(torch.bmm(w[:, :, :-2], x.transpose(1, 2)).add_(b))
        error = torch.sum(torch.mul(value, v, out=product), dim=1).mul_(self._scale).sub_(labels)[:, None]
        error.mul_(self._scale)
        slope.mul_(error).mul_(v)
        if of_v:
            out[:, :, -2].add_(torch.sum(value.mul_(error), dim=2))
        if of_b:
            out[:, :, -1].add_(torch.sum(slope, dim=2))
        if of_w:
            out[:, :, :-2].baddbmm_(slope, x)

    def predict(self, w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return s Σ_i v_i σ(w_i·x + b_i) on x; s is the scale of the output."""
        value = self._link.value(torch.bmm(w[:, :, :-2], x.transpose(1, 2)).add_(w[:, :, -1:]))
        return torch.sum(value * w[:, :, -2:-1], dim=1).mul_(self._scale)

    def restrict(self, w: torch.Tensor, gradient: torch.Tensor) -> None:
        """Remove from the gradient, in place, its part along neurons whose length is kept."""
        super().restrict(w, gradient)
        if self._lengths is not None:
            along, neurons = gradient[:, :, : self._inner], w[:, :, : self._inner]
            share = torch.sum(along * neurons, dim=2, keepdim=True) / self._lengths**2
            along.addcmul_(share, neurons, value=-1)

    def put_back(self, w: torch.Tensor) -> None:
        """Scale neurons whose length is kept back to that length, in place."""
        if self._lengths is not None:
            neurons = w[:, :, : self._inner]
            neurons.mul_(self._lengths / torch.linalg.vector_norm(neurons, dim=2, keepdim=True))

    def add_decay(self, w: torch.Tensor, gradient: torch.Tensor) -> None:
        """Add decay times weights to the gradient, in place."""
        if self._decays:
            gradient.addcmul_(w, self._decay)

    def step(self, w: torch.Tensor, direction: torch.Tensor, rate: float) -> None:
        """Subtract `rate` times the direction from the weights, each layer at its relative rate, in place."""
        w.addcmul_(direction, self._rates, value=-rate)


class LossNetwork(_Network):
    """A network with C outputs f_k = s Σ_i V_ki σ(w_i·x + b_i) under any loss, V and b in the last columns.

    `slope` returns ∂ℓ/∂f (lanes, C, B) of outputs (lanes, C, B) and labels (lanes, B).
    """

    def __init__(
        self,
        link: TorchLink,
        network: problem_forms.Network,
        like: torch.Tensor,
        outputs: int,
        slope: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    ) -> None:
        """Prepare a network of `outputs` outputs on isotropic inputs, see `_Network`, with the slope of its loss."""
        super().__init__(link, network, None, like, outputs)
        self._slope_of_loss = slope

    def add_gradient(self, w: torch.Tensor, x: torch.Tensor, labels: torch.Tensor, out: torch.Tensor) -> None:
        """Add the gradient of the loss, summed over samples, to `out`, only in the layers that are trained.

        With the slope p_bk = ∂ℓ/∂f_k of the loss of sample b, the scale s, and σ and σ' at w_i·x_b + b_i, row i gets
        s Σ_bk p_bk V_ki σ' x_b in the columns of w_i, s Σ_b p_bk σ in that of V_ki, and s Σ_bk p_bk V_ki σ' in the
        last one, of the bias.
        """
        inner, V, (of_w, of_v, of_b) = self._inner, w[:, :, self._inner : -1], self._trained
        value, _, slope = self._link_at(torch.bmm(w[:, :, :inner], x.transpose(1, 2)).add_(w[:, :, -1:]))
        outputs = torch.bmm(V.transpose(1, 2), value).mul_(self._scale)
        pull = self._slope_of_loss(outputs, labels).mul_(self._scale)
        if of_v:
            out[:, :, inner:-1].add_(torch.bmm(value, pull.transpose(1, 2)))
        slope.mul_(torch.bmm(V, pull))
        if of_b:
            out[:, :, -1].add_(torch.sum(slope, dim=2))
        if of_w:
            out[:, :, :inner].baddbmm_(slope, x)

    def predict(self, w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return the outputs on x, (lanes, C, B)."""
        value = self._link.value(torch.bmm(w[:, :, : self._inner], x.transpose(1, 2)).add_(w[:, :, -1:]))
        return torch.bmm(w[:, :, self._inner : -1].transpose(1, 2), value).mul_(self._scale)


class _Frame(Neurons):
    """The student f(x) = n Σ_i h_2(w_i·x) of orthonormal neurons w_i.

    N = `squared_norm` is the squared length that is kept.
    """

    def __init__(self, link: TorchLink, squared_norm: float) -> None:
        super().__init__(link)
        self.squared = self._squared_norm = squared_norm

    def add_gradient(self, w: torch.Tensor, x: torch.Tensor, labels: torch.Tensor, out: torch.Tensor) -> None:
        """Add the part of the gradient that is tangent to the set of frames to `out`.

        With z_i = w_i·x_b and the error e_b of sample b, neuron i gets √2 Σ_b e_b z_i (x_b − Σ_j z_j w_j): the part of
        x_b in the span of the orthonormal neurons w_j is taken away. This is the gradient of Σ_b ½ e_b² in the neurons
        √N w_i, divided by √N.
        """
        z = torch.bmm(w, x.transpose(1, 2))
        error = self._output(z) - labels
        pull = math.sqrt(2.0) * error[:, None] * z
        out.baddbmm_(pull, x - torch.bmm(z.transpose(1, 2), w))

    def predict(self, w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return the outputs of the frame on x."""
        return self._output(torch.bmm(w, x.transpose(1, 2)))

    def _output(self, z: torch.Tensor) -> torch.Tensor:
        """Return n Σ_i h_2(z_i), h_2(z) = (z² − 1)/√2, for z along unit neurons; n is their squared length."""
        return self._squared_norm / math.sqrt(2.0) * (torch.sum(z * z, dim=1) - z.shape[1])

    def put_back(self, w: torch.Tensor) -> None:
        """Make the neurons orthonormal again, by the inverse square root of their Gram matrix, in place."""
        values, vectors = torch.linalg.eigh(torch.nan_to_num(torch.bmm(w, w.transpose(1, 2))))
        w.copy_(torch.bmm((vectors / torch.sqrt(values)[:, None]) @ vectors.transpose(1, 2), w))


def make_neurons(problem: Problem, link: TorchLink, like: torch.Tensor) -> Neurons:
    """Return the kind of student of a problem, which has its gradient and constraint.

    `like` is a tensor of its weights (lanes, m, columns), whose type and device are used.
    """
    if is_frame(problem):
        return _Frame(link, float(problem.start().squared_norm[0]))
    if not (is_homogeneous(problem) or is_network(problem)):
        return (_Spherical if is_spherical(problem) else _Committee)(link)
    if needs_points(problem):
        network, slope = network_of(problem), slope_of_loss(problem.objective, like)
        return LossNetwork(link, network, like, problem.num_outputs, slope)
    inputs, values = problem.covariance, None
    if inputs is not None:
        values = torch.from_numpy(inputs.eigenvalues_of_axes(problem.dimension)).to(like)
    return _Network(link, network_of(problem), values, like) if is_network(problem) else _Homogeneous(link, values)
