"""Full models of tokens in torch, one per kind of problem, trained by autograd on samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dynamics.tokens import LOG_FLOOR, system_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dynamics.tokens import TokenProblem

#: Inputs on which loss and progress are measured.
TEST_INPUTS = 64


class Model(ABC):
    """A model with one set of parameters per seed, trained by autograd; sets have the seed as their first axis.

    Parameters
    ----------
    problem : TokenProblem
    seeds : sequence of int
        Seeds of the sets.
    device : torch.device
    """

    #: Samples of a step by default; None for the whole population.
    default_batch: int | None = 4

    def __init__(self, problem: Any, seeds: Sequence[int], device: torch.device) -> None:
        self.problem = problem
        self.seeds = len(seeds)
        self.options: dict[str, Any] = {"dtype": torch.float64, "device": device}
        self.parameters: list[torch.Tensor] = []
        #: Inputs that all sets are measured on.
        self.test = [part[None] for part in self.draw(torch.Generator().manual_seed(2**31), TEST_INPUTS)]

    def add(self, *shape: int, value: float = 0.0) -> torch.Tensor:
        """Return new parameters of equal entries, one array of this shape per seed."""
        self.parameters.append(torch.full((self.seeds, *shape), value, **self.options, requires_grad=True))
        return self.parameters[-1]

    @abstractmethod
    def draw(self, generator: torch.Generator, count: int) -> list[torch.Tensor]:
        """Return so many inputs with their answers, on the CPU."""

    @abstractmethod
    def sample_losses(self, batch: Sequence[torch.Tensor], time: float) -> torch.Tensor:
        """Return the loss at a time of every set on each of its inputs, (seeds, count)."""

    @abstractmethod
    def measured(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return loss (seeds,) and progress (seeds, components)."""

    def population_loss(self, time: float) -> torch.Tensor:  # noqa: ARG002
        """Return the loss at a time over all inputs, (seeds,); refuse where these are too many."""
        msg = f"Argument `batch_size` must be given for the problem {self.problem.kind!r}, but is None."
        raise ValueError(msg)

    def step(self, batch: Sequence[torch.Tensor] | None, time: float, learning_rate: float) -> None:
        """Take one step of gradient descent on a batch (seeds, count, …), None for the population."""
        losses = self.population_loss(time) if batch is None else self.sample_losses(batch, time).mean(dim=1)
        total = losses.sum()
        found = torch.autograd.grad(total, self.parameters, allow_unused=True)
        with torch.no_grad():
            for parameter, gradient in zip(self.parameters, found, strict=True):
                if gradient is not None:
                    parameter.sub_(learning_rate * self.direction(gradient))

    def direction(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return the direction that a step subtracts for a gradient, per learning rate."""
        return gradient


class CompositionModel(Model):
    r"""Composition: log₂ k + 1 layers of attention over k N positions, with matrices W_1 … W_L.

    .. math:: c^0 = \mathrm{onehot}\, \sigma_i(j), \qquad c^1 = \mathrm{softmax}(W_1)\, c^0, \qquad
       c^l = \mathrm{softmax}\Big(\sum_v c^{l-1}_{(i,j)}[v]\, W_l[(i,v), \cdot]\Big)\, c^{l-1}
    """

    def __init__(self, problem: Any, seeds: Sequence[int], device: torch.device) -> None:
        N, k = problem.vocabulary, problem.hops
        # The hidden permutations are part of the problem, the same for all seeds.
        self.hidden = permutations(torch.Generator().manual_seed(0), 1, k, N)[0]
        super().__init__(problem, seeds, device)
        rows = torch.arange(k * N)
        i, v = rows // N, rows % N
        for layer in range(problem.layers):
            W = self.add(k * N, k * N)
            right = i * N + self.hidden[i, v] if layer == 0 else ((i + 2 ** (layer - 1)) % k) * N + v
            with torch.no_grad():
                W[:, rows, right] = problem.initial_score
        system = system_of(problem)
        self._weights = torch.as_tensor(problem.stage_weights, **self.options)
        self._ends = system.stage_ends

    def draw(self, generator: torch.Generator, count: int) -> list[torch.Tensor]:
        """Return permutations σ (count, k, N) and the hops (layers, k, N) of each."""
        sigma = permutations(generator, count, self.problem.hops, self.problem.vocabulary)
        hops = [torch.gather(sigma, 2, self.hidden.expand_as(sigma))]
        for layer in range(1, self.problem.layers):
            hops.append(torch.gather(hops[-1].roll(-(2 ** (layer - 1)), dims=1), 2, hops[-1]))
        return [sigma, torch.stack(hops, dim=1)]

    def right_weights(self, batch: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return c^l[y] of all layers and positions, (layers, seeds, count, k N)."""
        N, k = self.problem.vocabulary, self.problem.hops
        sigma, hops = (part.to(self.options["device"]) for part in batch)
        c = torch.nn.functional.one_hot(sigma, N).to(torch.float64).flatten(2, 3)
        found = []
        for layer, W in enumerate(self.parameters):
            if layer == 0:
                scores = W[:, None]
            else:
                content = c.reshape(*c.shape[:2], k, N, N)
                scores = torch.einsum("sbijv,sivq->sbijq", content, W.reshape(-1, k, N, k * N)).flatten(2, 3)
            c = torch.softmax(scores, dim=-1) @ c
            answers = hops[:, :, layer].flatten(2, 3)[..., None].expand(c.shape[0], -1, -1, 1)
            found.append(torch.gather(c, 3, answers)[..., 0])
        return torch.stack(found)

    def layer_losses(self, right: torch.Tensor) -> torch.Tensor:
        """Return the loss of every layer, summed over positions, (seeds, count, layers)."""
        cross = self.problem.loss == "cross-entropy"
        losses = -torch.log(right) if cross else 1.0 / self.problem.vocabulary - right
        return losses.sum(dim=3).movedim(0, -1)

    def sample_losses(self, batch: Sequence[torch.Tensor], time: float) -> torch.Tensor:
        """Return the loss of the stage at a time."""
        stage = sum(time >= end * (1.0 - 1e-9) for end in self._ends)
        return self.layer_losses(self.right_weights(batch)) @ self._weights[stage]

    @torch.no_grad()
    def measured(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss of all stages together, and s_l by the weight on the right symbol."""
        right = self.right_weights(self.test)
        N = self.problem.vocabulary
        progress = (right.mean(dim=(2, 3)).T - 1.0 / N) / (1.0 - 1.0 / N)
        return (self.layer_losses(right) @ self._weights.sum(dim=0)).mean(dim=1), progress


def permutations(generator: torch.Generator, count: int, k: int, N: int) -> torch.Tensor:
    """Return uniform permutations (count, k, N)."""
    return torch.rand(count, k, N, generator=generator, dtype=torch.float32).argsort(dim=2)


class RecallModel(Model):
    r"""Factual recall: values V (A, tokens) and keys K (tokens,) of subjects, relations and noise.

    .. math:: \mathrm{logit}_a = \sum_{z \in \mathrm{tokens}} V_{az} K_z
    """

    def __init__(self, problem: Any, seeds: Sequence[int], device: torch.device) -> None:
        R, S, D = problem.relations, problem.subjects, problem.answers
        super().__init__(problem, seeds, device)
        self._system: Any = system_of(problem)
        # Loss and progress are measured on every pair of a subject and a relation.
        s, r = torch.arange(S).repeat_interleave(R), torch.arange(R).repeat(S)
        self.test = [part[None] for part in self.sequences(s, r, torch.Generator().manual_seed(2**31))]
        tokens = S + R + problem.noise_tokens
        self.values = self.add(R * D, tokens, value=problem.initial_scale)
        self.keys = self.add(tokens, value=problem.initial_scale * np.sqrt(R * D + 1.0))

    def sequences(self, s: torch.Tensor, r: torch.Tensor, generator: torch.Generator) -> list[torch.Tensor]:
        """Return the tokens of sequences with these subjects and relations, and their answers."""
        R, S, D = self.problem.relations, self.problem.subjects, self.problem.answers
        more = self.problem.sequence_length - 2
        noise = torch.randint(max(self.problem.noise_tokens, 1), (len(s), more), generator=generator)
        return [torch.cat([s[:, None], S + r[:, None], S + R + noise], dim=1), r * D + (s + r) % D]

    def draw(self, generator: torch.Generator, count: int) -> list[torch.Tensor]:
        """Return tokens (count, length) and answers (count,) of uniform subjects and relations."""
        s = torch.randint(self.problem.subjects, (count,), generator=generator)
        r = torch.randint(self.problem.relations, (count,), generator=generator)
        return self.sequences(s, r, generator)

    def sample_losses(self, batch: Sequence[torch.Tensor], time: float) -> torch.Tensor:  # noqa: ARG002
        """Return −ln p of the right answers."""
        tokens, answers = (part.to(self.options["device"]) for part in batch)
        counts = torch.nn.functional.one_hot(tokens, self.keys.shape[1]).sum(dim=2).to(torch.float64)
        logits = counts @ (self.values * self.keys[:, None]).transpose(1, 2)
        right = torch.gather(logits, 2, answers[..., None].expand(len(logits), -1, 1))[..., 0]
        return torch.logsumexp(logits, dim=2) - right

    @torch.no_grad()
    def measured(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss over all pairs, and how far it has come to the plateau and from there."""
        loss = self.sample_losses(self.test, 0.0).mean(dim=1)
        return loss, torch.as_tensor(self._system.progress(loss.cpu().numpy()))


class CausalGraphModel(Model):
    r"""A latent causal graph: scores W (n, n) of the first layer, masked to earlier tokens; A = softmax(W).

    .. math:: s_t = \sum_{s<t} A_{ts} 1\{x_s = \mathrm{query}\}, \qquad f = \sum_t \rho_t\, \mathrm{onehot}(x_t)
    """

    def __init__(self, problem: Any, seeds: Sequence[int], device: torch.device) -> None:
        super().__init__(problem, seeds, device)
        self._system: Any = system_of(problem)
        n = problem.length
        self.scores = self.add(n, n)
        self._hidden = torch.ones(n, n, dtype=torch.bool, device=device).triu()
        self._hidden[0, 0] = False

    def draw(self, generator: torch.Generator, count: int) -> list[torch.Tensor]:
        """Return tokens (count, n), queries and their successors (count,)."""
        S, q = self.problem.vocabulary, self.problem.persistence
        chain = torch.rand(count, S, S, generator=generator, dtype=torch.float64)
        if self.problem.transitions == "permutation":
            chain = torch.nn.functional.one_hot(chain[:, 0].argsort(dim=1), S).to(torch.float64)
        else:  # uniform on the simplex
            chain = -torch.log1p(-chain)
            chain /= chain.sum(dim=2, keepdim=True)
        below = (q * chain + (1.0 - q) / S).cumsum(dim=2)
        rows = torch.arange(count)

        def successor(of: torch.Tensor) -> torch.Tensor:
            drawn = torch.rand(count, 1, generator=generator, dtype=torch.float64)
            found: torch.Tensor = (below[rows, of] < drawn).sum(dim=1).clamp(max=S - 1)
            return found

        tokens: list[torch.Tensor] = []
        for parent in self.problem.parents:
            root = parent is None
            tokens.append(torch.randint(S, (count,), generator=generator) if root else successor(tokens[parent]))
        query = torch.randint(S, (count,), generator=generator)
        return [torch.stack(tokens, dim=1), query, successor(query)]

    def weights(self) -> torch.Tensor:
        """Return A (seeds, n, n)."""
        return torch.softmax(self.scores.masked_fill(self._hidden, -torch.inf), dim=2)

    def sample_losses(self, batch: Sequence[torch.Tensor], time: float) -> torch.Tensor:  # noqa: ARG002
        """Return −f[y], or −ln(f[y] + 0.05) of Dirichlet transitions."""
        x, query, y = (part.to(self.options["device"]) for part in batch)
        asked, right = ((x == each[..., None]).to(torch.float64) for each in (query, y))
        scores = asked @ self.weights().transpose(1, 2)
        if self.problem.second_layer == "linear":
            f = (scores * right).mean(dim=2)
        else:
            f = (torch.softmax(self.problem.beta * scores, dim=2) * right).sum(dim=2)
        return -torch.log(f + LOG_FLOOR) if self.problem.transitions == "dirichlet" else -f

    @torch.no_grad()
    def measured(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss on the test sequences, and the progress of every row by its weights."""
        loss = self.sample_losses(self.test, 0.0).mean(dim=1)
        rows = self.weights().cpu().numpy()
        n = self.problem.length
        progress = [self._system.progress([one[t, :t] for t in range(2, n)]) for one in rows]
        return loss, torch.as_tensor(np.array(progress))


class MemoryModel(Model):
    r"""An associative memory: W (d, d), from zero, between orthonormal embeddings that every seed draws.

    .. math:: \mathrm{logit}_j = u_j \cdot W e_i
    """

    default_batch = None

    def __init__(self, problem: Any, seeds: Sequence[int], device: torch.device) -> None:
        self._groups = torch.repeat_interleave(torch.tensor(problem.group_sizes))
        self._sizes = torch.tensor(problem.group_sizes, dtype=torch.float64, device=device)
        self._frequency = torch.as_tensor(problem.group_frequencies)[self._groups]
        super().__init__(problem, seeds, device)
        d = problem.dimension or problem.count
        self.matrix = self.add(d, d)
        drawn = [torch.Generator().manual_seed(seed) for seed in seeds]
        self._inputs, self._outputs = (
            torch.stack([_orthonormal(generator, problem.count, d) for generator in drawn]).to(device) for _ in range(2)
        )

    def draw(self, generator: torch.Generator, count: int) -> list[torch.Tensor]:
        """Return items (count,) by their frequencies."""
        return [torch.multinomial(self._frequency, count, replacement=True, generator=generator)]

    def sample_losses(self, batch: Sequence[torch.Tensor], time: float) -> torch.Tensor:  # noqa: ARG002
        """Return −ln p of the right outputs."""
        items = batch[0].to(self._inputs.device)[..., None]
        return -torch.gather(self.log_weights(items), 2, items)[..., 0]

    def log_weights(self, items: torch.Tensor) -> torch.Tensor:
        """Return the logarithm of the weights of all outputs for items (seeds, count, 1), (seeds, count, N)."""
        inputs = torch.gather(self._inputs, 1, items.expand(len(self._inputs), -1, self._inputs.shape[2]))
        return torch.log_softmax(inputs @ self.matrix.transpose(1, 2) @ self._outputs.transpose(1, 2), dim=2)

    def all_losses(self) -> torch.Tensor:
        """Return −ln p of all items, (seeds, N)."""
        every = torch.arange(self.problem.count).expand(self.seeds, -1)
        return self.sample_losses([every], 0.0)

    def population_loss(self, time: float) -> torch.Tensor:  # noqa: ARG002
        """Return the loss over all items by their frequencies."""
        return self.all_losses() @ self._frequency.to(self._inputs.device)

    def direction(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return the gradient, or h of its singular values."""
        return gradient if self.problem.smoothing is None else smooth_signs(gradient, self.problem.smoothing)

    @torch.no_grad()
    def measured(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss over all items, and the mean weight of the right output in every group."""
        losses = self.all_losses()
        sums = torch.zeros(self.seeds, len(self._sizes), dtype=torch.float64, device=losses.device)
        groups = self._groups.to(losses.device).expand(self.seeds, -1)
        return losses @ self._frequency.to(losses.device), sums.scatter_add(1, groups, torch.exp(-losses)) / self._sizes


def smooth_signs(matrix: torch.Tensor, smoothing: float) -> torch.Tensor:
    """Return matrices (…, d, d) with h(z) = z/√(z² + λ²) of every singular value."""
    left, values, right = torch.linalg.svd(matrix)
    signs = values / torch.hypot(values, torch.full_like(values, smoothing))
    return torch.matmul(left * signs[..., None, :], right)


def _orthonormal(generator: torch.Generator, count: int, dimension: int) -> torch.Tensor:
    """Return orthonormal rows (count, dimension), as random as their generator."""
    drawn = torch.randn(dimension, count, generator=generator, dtype=torch.float64)
    return torch.as_tensor(np.linalg.qr(drawn.numpy())[0].T.copy())


#: Kind of a problem -> its full model.
MODELS: dict[str, type[Model]] = {
    "composition": CompositionModel,
    "recall": RecallModel,
    "causal-graph": CausalGraphModel,
    "memory": MemoryModel,
}


def model_of(problem: TokenProblem, seeds: Sequence[int], device: torch.device) -> Model:
    """Return the full model of a problem."""
    return MODELS[problem.kind](problem, seeds, device)
