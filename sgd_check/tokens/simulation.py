"""Runs of the full model on sampled tokens, all seeds at once, half of them at four times the batch.

Models are in torch, one per kind of problem, trained by autograd. Of an associative memory with Gaussian embeddings one
step is drawn per seed.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dynamics.problem import MOST_RUNS, check_choice, check_question, check_switch, checked_integer, checked_number
from dynamics.runs import RunFile, as_run_file, make_dataset
from dynamics.tokens import KINDS, LOG_FLOOR, TOKEN_VARIABLES, AssociativeMemory, TokenProblem, rank_bins, system_of
from hermite.arrays import Array
from hermite.text.messages import refuse, require, shown
from sgd_check.engines.registry import RunBatch
from sgd_check.engines.seeded_runs import check_shapes
from sgd_check.simulations.plan import Plan
from sgd_check.simulations.recording import Looks
from sgd_check.simulations.simulation import checked_budget, run_with_file

try:
    import torch
except ModuleNotFoundError as missing:
    reason = 'Models of tokens need an extra package: pip install "feature-emergence[torch]".'
    raise ImportError(reason) from missing

from sgd_check.engines.torch.weights import one_torch_thread


@contextmanager
def _own_state() -> Iterator[None]:
    """Use the gradients and devices of this module, independent of settings of torch by a caller."""
    with torch.inference_mode(mode=False), torch.enable_grad(), torch.device("cpu"):
        yield


#: Inputs on which loss and progress are measured.
TEST_INPUTS = 64


class Model(ABC):
    """A model with one set of parameters per seed, trained by autograd; sets have the seed as their first axis."""

    #: Samples of a step by default; None for the whole population.
    default_batch: int | None = 4
    #: Time at which the step begins.
    time: float = 0.0

    def __init__(self, problem: Any, seeds: Sequence[int], device: torch.device) -> None:
        self.problem, self.seeds = problem, seeds
        self.options: dict[str, Any] = {"dtype": torch.float64, "device": device}
        self.parameters: list[torch.Tensor] = []
        self.system: Any = system_of(problem)
        self.build()
        #: Inputs that all sets are measured on.
        self.test = self.placed([part[None] for part in self.test_inputs(torch.Generator().manual_seed(2**31))])

    @abstractmethod
    def build(self) -> None:
        """Add the parameters, at their start."""

    def test_inputs(self, generator: torch.Generator) -> list[torch.Tensor]:
        """Return the inputs on which loss and progress are measured, with their answers."""
        return self.draw(generator, TEST_INPUTS)

    def placed(self, batch: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return inputs on the device of the model."""
        return [part.to(self.options["device"]) for part in batch]

    def add(self, *shape: int, start: float | torch.Tensor = 0.0) -> torch.Tensor:
        """Return new parameters, one array of this shape per seed, all of which start alike."""
        self.parameters.append((torch.zeros(len(self.seeds), *shape, **self.options) + start).requires_grad_())
        return self.parameters[-1]

    @abstractmethod
    def draw(self, generator: torch.Generator, count: int) -> list[torch.Tensor]:
        """Return `count` inputs with their answers, on the CPU."""

    @abstractmethod
    def sample_losses(self, batch: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the losses (seeds, count) of every set of parameters on its inputs, which lie on the same device."""

    @abstractmethod
    def measure(self) -> tuple[torch.Tensor, torch.Tensor | Array]:
        """Return loss (seeds,) and progress (seeds, components), without gradients."""

    @torch.no_grad()
    def measured(self) -> tuple[Array, Array]:
        """Return loss (seeds,) and progress (seeds, components)."""
        loss, progress = self.measure()
        return loss.cpu().numpy(), torch.as_tensor(progress).cpu().numpy()

    def population_loss(self) -> torch.Tensor:
        """Return the loss over all inputs, (seeds,); refuse where these are too many."""
        refuse(f"Argument `batch_size` must be given for the problem {self.problem.kind!r}, but is None.")

    def step(self, batch: Sequence[torch.Tensor] | None, time: float, learning_rate: float) -> None:
        """Take one step of gradient descent on a batch (seeds, count, …), None for the population."""
        self.time = time
        losses = self.population_loss() if batch is None else self.sample_losses(self.placed(batch)).mean(dim=1)
        gradients = torch.autograd.grad(losses.sum(), self.parameters, allow_unused=True)
        with torch.no_grad():
            for parameter, gradient in zip(self.parameters, gradients, strict=True):
                if gradient is not None:
                    parameter.sub_(learning_rate * self.direction(gradient))

    def direction(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return the direction that a step subtracts for a gradient, per learning rate."""
        return gradient


class _Composition(Model):
    """Composition: log₂ k + 1 layers of attention over k N positions, with matrices W_1 … W_L."""

    def build(self) -> None:
        """Add one matrix of scores (k N, k N) per layer, whose right entries start at the initial score."""
        N, k = self.problem.vocabulary, self.problem.hops
        # The hidden permutations are part of the problem, the same for all seeds.
        self.hidden = permutations(torch.Generator().manual_seed(0), 1, k, N)[0]
        rows = torch.arange(k * N)
        i, v = rows // N, rows % N
        for layer in range(self.problem.layers):
            right = i * N + self.hidden[i, v] if layer == 0 else ((i + 2 ** (layer - 1)) % k) * N + v
            self.add(k * N, k * N).data[:, rows, right] = self.problem.initial_score
        self._weights = torch.as_tensor(self.problem.stage_weights, **self.options)

    def draw(self, generator: torch.Generator, count: int) -> list[torch.Tensor]:
        """Return permutations σ (count, k, N) and the hops (layers, k, N) of each."""
        sigma = permutations(generator, count, self.problem.hops, self.problem.vocabulary)
        hops = [torch.gather(sigma, 2, self.hidden.expand_as(sigma))]
        for layer in range(1, self.problem.layers):
            hops.append(torch.gather(hops[-1].roll(-(2 ** (layer - 1)), dims=1), 2, hops[-1]))
        return [sigma, torch.stack(hops, dim=1)]

    def right_weights(self, batch: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the weight of the right answer in each layer and position, (layers, seeds, count, k N).

        A batch holds permutations and the hops that are the answers of each layer.
        """
        N, k = self.problem.vocabulary, self.problem.hops
        sigma, hops = batch
        c = torch.nn.functional.one_hot(sigma, N).to(torch.float64).flatten(2, 3)
        weights = []
        for layer, W in enumerate(self.parameters):
            content, keys = c.reshape(*c.shape[:2], k, N, N), W.reshape(-1, k, N, k * N)
            scores = W[:, None] if layer == 0 else torch.einsum("sbijv,sivq->sbijq", content, keys).flatten(2, 3)
            c = torch.softmax(scores, dim=-1) @ c
            answers = hops[:, :, layer].flatten(2, 3)[..., None].expand(c.shape[0], -1, -1, 1)
            weights.append(torch.gather(c, 3, answers)[..., 0])
        return torch.stack(weights)

    def layer_losses(self, right: torch.Tensor) -> torch.Tensor:
        """Return the loss of every layer, summed over positions, (seeds, count, layers)."""
        cross = self.problem.loss == "cross-entropy"
        losses = -torch.log(right) if cross else 1.0 / self.problem.vocabulary - right
        return losses.sum(dim=3).movedim(0, -1)

    def sample_losses(self, batch: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the losses (seeds, count) with the weights of the layers at the current stage of training."""
        stage = sum(self.time >= end * (1.0 - 1e-9) for end in self.system.stage_ends)
        return self.layer_losses(self.right_weights(batch)) @ self._weights[stage]

    def measure(self) -> tuple[torch.Tensor, torch.Tensor | Array]:
        """Return loss (seeds,), and progress (seeds, layers): 0 at chance, 1 if all weight is on the right answers."""
        right, N = self.right_weights(self.test), self.problem.vocabulary
        progress = (right.mean(dim=(2, 3)).T - 1.0 / N) / (1.0 - 1.0 / N)
        return (self.layer_losses(right) @ self._weights.sum(dim=0)).mean(dim=1), progress


def permutations(generator: torch.Generator, count: int, k: int, N: int) -> torch.Tensor:
    """Return uniformly drawn permutations of 0 to N − 1, `count` times k of them, shape (count, k, N)."""
    return torch.rand(count, k, N, generator=generator, dtype=torch.float32).argsort(dim=2)


class _Recall(Model):
    """Factual recall: values V (A, tokens) and keys K (tokens,) of subjects, relations and noise."""

    def build(self) -> None:
        """Add values (answers, tokens) and keys (tokens,), all equal at the start."""
        tokens = self.problem.subjects + self.problem.relations + self.problem.noise_tokens
        answers, scale = self.problem.relations * self.problem.answers, self.problem.initial_scale
        self.values = self.add(answers, tokens, start=scale)
        self.keys = self.add(tokens, start=scale * np.sqrt(answers + 1.0))

    def test_inputs(self, generator: torch.Generator) -> list[torch.Tensor]:
        """Return sequences of every pair of subject and relation, with their answers."""
        R, S = self.problem.relations, self.problem.subjects
        return self.sequences(torch.arange(S).repeat_interleave(R), torch.arange(R).repeat(S), generator)

    def sequences(self, s: torch.Tensor, r: torch.Tensor, generator: torch.Generator) -> list[torch.Tensor]:
        """Return the tokens of sequences with these subjects and relations, and their answers."""
        R, S, D = self.problem.relations, self.problem.subjects, self.problem.answers
        noise_count = self.problem.sequence_length - 2
        noise = torch.randint(max(self.problem.noise_tokens, 1), (len(s), noise_count), generator=generator)
        return [torch.cat([s[:, None], S + r[:, None], S + R + noise], dim=1), r * D + (s + r) % D]

    def draw(self, generator: torch.Generator, count: int) -> list[torch.Tensor]:
        """Return tokens (count, length) and answers (count,) of uniform subjects and relations."""
        sizes = (self.problem.subjects, self.problem.relations)
        s, r = (torch.randint(size, (count,), generator=generator) for size in sizes)
        return self.sequences(s, r, generator)

    def sample_losses(self, batch: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the cross-entropies (seeds, count) of the answers."""
        tokens, answers = batch
        counts = torch.nn.functional.one_hot(tokens, self.keys.shape[1]).sum(dim=2).to(torch.float64)
        logits = counts @ (self.values * self.keys[:, None]).transpose(1, 2)
        right = torch.gather(logits, 2, answers[..., None].expand(len(logits), -1, 1))[..., 0]
        return torch.logsumexp(logits, dim=2) - right

    def measure(self) -> tuple[torch.Tensor, torch.Tensor | Array]:
        """Return loss (seeds,) over all pairs, and progress (seeds, components) as the theory counts it."""
        loss = self.sample_losses(self.test).mean(dim=1)
        return loss, self.system.progress(loss.cpu().numpy())


class _CausalGraph(Model):
    """A latent causal graph: scores W (n, n) of the first layer, masked to earlier tokens; A = softmax(W)."""

    def build(self) -> None:
        """Add the scores (n, n), 0 at the start, and the mask of later tokens."""
        n = self.problem.length
        self.scores = self.add(n, n)
        self._hidden = torch.ones(n, n, dtype=torch.bool, device=self.options["device"]).triu()
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

        def uniform() -> torch.Tensor:
            return torch.randint(S, (count,), generator=generator)

        def successor(of: torch.Tensor) -> torch.Tensor:
            """Return tokens drawn from the row of the token before, (count,)."""
            uniform_numbers = torch.rand(count, 1, generator=generator, dtype=torch.float64)
            tokens_after: torch.Tensor = (below[rows, of] < uniform_numbers).sum(dim=1).clamp(max=S - 1)
            return tokens_after

        tokens: list[torch.Tensor] = []
        for parent in self.problem.parents:
            tokens.append(uniform() if parent is None else successor(tokens[parent]))
        query = uniform()
        return [torch.stack(tokens, dim=1), query, successor(query)]

    def weights(self) -> torch.Tensor:
        """Return the attention A (seeds, n, n) of the first layer, each row a softmax over earlier tokens."""
        return torch.softmax(self.scores.masked_fill(self._hidden, -torch.inf), dim=2)

    def sample_losses(self, batch: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the losses (seeds, count) of the successors of the queries.

        They are minus the logarithm of the weight on the right answers for "dirichlet", minus that weight for
        "permutation".
        """
        x, query, y = batch
        is_query, is_answer = ((x == labels[..., None]).to(torch.float64) for labels in (query, y))
        scores = is_query @ self.weights().transpose(1, 2)
        if self.problem.second_layer == "linear":
            f = (scores * is_answer).mean(dim=2)
        else:
            f = (torch.softmax(self.problem.beta * scores, dim=2) * is_answer).sum(dim=2)
        return -torch.log(f + LOG_FLOOR) if self.problem.transitions == "dirichlet" else -f

    def measure(self) -> tuple[torch.Tensor, torch.Tensor | Array]:
        """Return loss (seeds,), and progress (seeds, components) of the attention as the theory counts it."""
        rows, n = self.weights().cpu().numpy(), self.problem.length
        progress = [self.system.progress([weights[t, :t] for t in range(2, n)]) for weights in rows]
        return self.sample_losses(self.test).mean(dim=1), np.array(progress)


class _Memory(Model):
    """An associative memory: W (d, d), from zero, between orthonormal embeddings that every seed draws."""

    default_batch = None

    def build(self) -> None:
        """Add the matrix (d, d), 0 at the start, and draw each seed's orthonormal embeddings."""
        problem, device = self.problem, self.options["device"]
        self._sizes = torch.tensor(problem.group_sizes, **self.options)
        self._groups = torch.repeat_interleave(torch.tensor(problem.group_sizes))
        self._frequency = torch.as_tensor(problem.group_frequencies)[self._groups]
        d = problem.dimension or problem.count
        self.matrix = self.add(d, d)
        generators = [torch.Generator().manual_seed(seed) for seed in self.seeds]
        gaussian_matrices = [
            [torch.randn(d, problem.count, generator=g, dtype=torch.float64) for g in generators] for _ in range(2)
        ]
        self._inputs, self._outputs = (
            torch.stack([torch.as_tensor(np.linalg.qr(matrix.numpy())[0].T.copy()) for matrix in matrices]).to(device)
            for matrices in gaussian_matrices
        )

    def draw(self, generator: torch.Generator, count: int) -> list[torch.Tensor]:
        """Return the numbers (count,) of items, drawn by their frequencies."""
        return [torch.multinomial(self._frequency, count, replacement=True, generator=generator)]

    def sample_losses(self, batch: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the cross-entropies (seeds, count) of the outputs of the items in the batch."""
        items = batch[0][..., None]
        inputs = torch.gather(self._inputs, 1, items.expand(len(self._inputs), -1, self._inputs.shape[2]))
        scores = inputs @ self.matrix.transpose(1, 2) @ self._outputs.transpose(1, 2)
        return -torch.gather(torch.log_softmax(scores, dim=2), 2, items)[..., 0]

    def all_losses(self) -> torch.Tensor:
        """Return the cross-entropy of every item, (seeds, items)."""
        return self.sample_losses(self.placed([torch.arange(self.problem.count).expand(len(self.seeds), -1)]))

    def population_loss(self) -> torch.Tensor:
        """Return the mean cross-entropy over items by their frequencies, (seeds,)."""
        return self.all_losses() @ self._frequency.to(self._inputs.device)

    def direction(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return the gradient, or with smoothing λ the gradient with singular values z/√(z² + λ²)."""
        return gradient if self.problem.smoothing is None else smooth_signs(gradient, self.problem.smoothing)

    def measure(self) -> tuple[torch.Tensor, torch.Tensor | Array]:
        """Return loss (seeds,), and the mean probability of the right output in each group, (seeds, groups)."""
        losses = self.all_losses()
        sums = losses.new_zeros(len(losses), len(self._sizes))
        sums.index_add_(1, self._groups.to(losses.device), torch.exp(-losses))
        return losses @ self._frequency.to(losses.device), sums / self._sizes


class _Selection(Model):
    """Selection: read-outs U (q, H) and scores K (H, q, N, N) of the keys for a slot's position."""

    default_batch = 64

    def build(self) -> None:
        """Add values (q, H) and scores (H, q, N, N) of H heads and q selected tokens, at the start of the problem."""
        N, q, H = self.problem.tokens, self.problem.selected, self.problem.heads
        values, scores = (torch.as_tensor(part, **self.options) for part in self.problem.start())
        self.values = self.add(q, H, start=values)
        self.scores = self.add(H, q, N, N, start=scores[..., None, None] * torch.eye(N, **self.options))

    def test_inputs(self, generator: torch.Generator) -> list[torch.Tensor]:
        """Return prompts with tokens that are orthogonal, as they are on average."""
        positions, x = self.draw(generator, TEST_INPUTS)
        N = x.shape[1]
        return [positions, (N**0.5 * torch.eye(N, dtype=torch.float64)).expand(TEST_INPUTS, N, N)]

    def draw(self, generator: torch.Generator, count: int) -> list[torch.Tensor]:
        """Return distinct positions (count, q) and tokens (count, N, 8) of random signs."""
        N = self.problem.tokens
        positions = torch.rand(count, N, generator=generator, dtype=torch.float64).argsort(dim=1)
        # The theory does not depend on the dimension.
        signs = torch.randint(2, (count, N, 8), generator=generator, dtype=torch.int8)
        return [positions[:, : self.problem.selected], 2 * signs - 1]

    def attention(self, positions: torch.Tensor) -> torch.Tensor:
        """Return the attention of every head on all tokens, (seeds, count, H, N)."""
        slots = torch.arange(positions.shape[2])
        seeds = torch.arange(len(self.seeds))[:, None, None]
        scores = self.scores.transpose(1, 2)[seeds, slots, :, positions.expand(len(self.seeds), -1, -1)]
        return torch.softmax(scores.sum(dim=2), dim=3)

    def sample_losses(self, batch: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return half the mean squared errors (seeds, count) of the selected tokens."""
        positions, x = batch[0], batch[1].to(torch.float64)
        targets = torch.gather(x, 2, positions[..., None].expand(*positions.shape, x.shape[3]))
        outputs = self.values[:, None] @ (self.attention(positions) @ x)
        return 0.5 * ((outputs - targets) ** 2).sum(dim=(2, 3)) / x.shape[3]

    def measure(self) -> tuple[torch.Tensor, torch.Tensor | Array]:
        """Return loss (seeds,), and the mean attention of each head on the selected tokens, (seeds, heads)."""
        attention = self.attention(self.test[0])
        keys = self.test[0][:, :, None].expand(*attention.shape[:3], -1)
        return self.sample_losses(self.test).mean(dim=1), torch.gather(attention, 3, keys).sum(dim=3).mean(dim=1)


def smooth_signs(matrix: torch.Tensor, smoothing: float) -> torch.Tensor:
    """Return matrices (…, d, d) with h(z) = z/√(z² + λ²) of every singular value."""
    left, values, right = torch.linalg.svd(matrix)
    return torch.matmul(left * (values / (values**2 + smoothing**2).sqrt())[..., None, :], right)


class _TriggerTask(Model):
    """The trigger task: scores a (S + 1,) of tokens, b (S + 2,) of the token before, and B (gaps, T) of positions."""

    def build(self) -> None:
        """Add the scores of tokens, of tokens before and of positions, all 0 at the start."""
        self._gaps = torch.tensor(self.problem.gaps)
        self._weights = torch.as_tensor(self.problem.weights)
        self._longest = 2 * max(self.problem.gaps) + 3
        self.add(self.problem.symbols + 1)
        self.add(self.problem.symbols + 2)
        self.add(len(self._gaps) * self._longest)

    def test_inputs(self, generator: torch.Generator) -> list[torch.Tensor]:
        """Return as many sequences for each gap, with their answers."""
        return self.sequences(torch.arange(len(self._gaps)).repeat_interleave(TEST_INPUTS), generator)

    def draw(self, generator: torch.Generator, count: int) -> list[torch.Tensor]:
        """Return sequences (count, T) whose gaps are drawn by their weights, gap numbers and answers."""
        return self.sequences(torch.multinomial(self._weights, count, replacement=True, generator=generator), generator)

    def sequences(self, gaps: torch.Tensor, generator: torch.Generator) -> list[torch.Tensor]:
        """Return tokens (count, T), of which those after the second trigger do not count, gap numbers, and answers."""
        tokens = torch.randint(self.problem.symbols, (len(gaps), self._longest), generator=generator)
        rows, gap = torch.arange(len(gaps)), self._gaps[gaps]
        tokens[rows, gap] = tokens[rows, 2 * gap + 2] = self.problem.symbols
        return [tokens, gaps, tokens[rows, gap + 1]]

    def attention(self, batch: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the weights of all keys, (seeds, count, T)."""
        tokens, gaps = batch[0], batch[1][..., None]
        place, before = torch.arange(self._longest, device=gaps.device), tokens.roll(1, dims=2)
        before[..., 0] = self.problem.symbols + 1
        rows = torch.arange(len(self.seeds))[:, None, None]
        a, b, B = (
            table[rows, entry]
            for table, entry in zip(self.parameters, (tokens, before, gaps * self._longest + place), strict=True)
        )
        is_hidden = place > 2 * self._gaps.to(gaps.device)[gaps] + 2
        return torch.softmax((a + b + self.problem.triggers**0.5 * B).masked_fill(is_hidden, -torch.inf), dim=2)

    def sample_losses(self, batch: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return minus the attention on tokens that equal the answer, (seeds, count)."""
        return -(self.attention(batch) * (batch[0] == batch[2][..., None])).sum(dim=2)

    def measure(self) -> tuple[torch.Tensor, torch.Tensor | Array]:
        """Return loss (seeds,) over the gaps by their weights, and progress (seeds, components)."""
        losses = self.sample_losses(self.test).reshape(len(self.seeds), -1, TEST_INPUTS).mean(dim=2).cpu()
        mean = self.attention(self.test).reshape(len(self.seeds), -1, TEST_INPUTS, self._longest).mean(dim=2)
        right = [self.system.right(attention) for attention in mean.cpu().numpy()]
        return losses @ self._weights, self.system.progress(np.array(right))


class _PolicyGradient(Model):
    """A softmax policy: logits (actions,), trained on the rewards of actions that it samples.

    "plain" and "kl" are REINFORCE, the baseline of a sample being the mean of the others; "a-star" descends squares at
    V̂ = β ln E exp(r/β); "grpo" divides by the deviation of each group, where there is any.
    """

    default_batch = 256

    def build(self) -> None:
        """Add the logits (actions,), at the start of the problem; raise ValueError for "grpo" without groups."""
        self.beta, self.group = self.problem.kl_weight or 0.0, self.problem.group_samples or 1
        require(
            self.group > 1 or self.problem.objective != "grpo",
            "Argument `problem` must have `group_samples` for runs of GRPO, which sample groups, but has None.",
        )
        sizes, rewards, logits = torch.as_tensor(self.problem.groups, **self.options).unbind()
        self._groups = torch.repeat_interleave(sizes.long())
        self._rewards, start = rewards[self._groups], logits[self._groups]
        self._reference = torch.log_softmax(start, 0)
        self.logits = self.add(len(start), start=start)

    def draw(self, generator: torch.Generator, count: int) -> list[torch.Tensor]:
        """Return uniform numbers (count, G), from which actions are sampled."""
        return [torch.rand(count, self.group, generator=generator, dtype=torch.float64)]

    def sample_losses(self, batch: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return losses (seeds, count), for "grpo" one per group, whose gradients are the steps of the objective."""
        uniform, logs = batch[0], torch.log_softmax(self.logits, 1)
        below = logs.detach().exp().cumsum(1)
        actions = torch.searchsorted(below, uniform.flatten(1).contiguous()).clamp(max=below.shape[1] - 1)
        log_probabilities, rewards = logs.gather(1, actions), self._rewards[actions]
        ratio = self.beta * (log_probabilities - self._reference[actions])
        if self.problem.objective == "a-star":
            value = self.beta * torch.logsumexp(self._reference + self._rewards / self.beta, 0)
            return (ratio - rewards + value) ** 2
        if self.problem.objective == "grpo":
            # As 0 and 1, so that groups of one reward have no deviation, not even by rounding.
            good = (rewards == self._rewards.max()).to(torch.float64).reshape(uniform.shape)
            spread = good.std(2, correction=0, keepdim=True)
            advantage = (good - good.mean(2, keepdim=True)) / torch.where(spread > 0.0, spread, 1.0)
            return -(advantage * log_probabilities.reshape(uniform.shape)).mean(2)
        gain, count = rewards - ratio.detach(), rewards.shape[1]
        require(count > 1, "Argument `batch_size` must be at least 2, as a baseline needs other samples, but is 1.")
        return -log_probabilities * (gain - gain.mean(1, keepdim=True)) * count / (count - 1)

    def measure(self) -> tuple[torch.Tensor, torch.Tensor | Array]:
        """Return the expected loss (seeds,), and progress (seeds, components) by the actions' probabilities."""
        logs = torch.log_softmax(self.logits, 1)
        shares = logs.new_zeros(len(logs), len(self.problem.rewards)).index_add_(1, self._groups, logs.exp())
        loss = (logs.exp() * (self.beta * (logs - self._reference) - self._rewards)).sum(1)
        return loss, self.system.progress(shares.cpu().numpy())


class _ChainOfThought(Model):
    """The chain of thought: linear attention with all weights V and W (2 d + 2, 2 d + 2), on tokens (x, y, w, 1)."""

    default_batch = 32

    def build(self) -> None:
        """Add values and keys (2 d + 2, 2 d + 2), with the initial scale in the blocks that the task needs."""
        d, scale = self.problem.dimension, self.problem.initial_scale
        self.values, self.keys = self.add(2 * d + 2, 2 * d + 2), self.add(2 * d + 2, 2 * d + 2)
        x, w = torch.arange(d), torch.arange(d + 1, 2 * d + 1)
        self.values.data[:, w, x] = self.keys.data[:, x, w] = self.keys.data[:, d, -1] = scale

    def draw(self, generator: torch.Generator, count: int) -> list[torch.Tensor]:
        """Return x (count, n, d) and w* (count, d)."""
        n, d = self.problem.examples, self.problem.dimension
        normals = torch.randn(count, n + 1, d, generator=generator, dtype=torch.float64)
        return [normals[:, :n], normals[:, n]]

    def test_inputs(self, generator: torch.Generator) -> list[torch.Tensor]:
        """Return examples with the mean of tr S² of all, S = XᵀX/n, each with w* along several axes.

        The loss has heavy tails: 64 inputs at random leave it uncertain by a third in three dimensions.
        """
        n, d = self.problem.examples, self.problem.dimension
        axes = min(d, TEST_INPUTS)
        x, _ = self.draw(generator, 8 * TEST_INPUTS // d)
        squares = ((x.transpose(1, 2) @ x / n) ** 2).sum(dim=(1, 2)).mean()
        x = x * (d * (n + d + 1) / n / squares) ** 0.25
        targets = d**0.5 * torch.eye(d, dtype=x.dtype)[:axes]
        return [x.repeat_interleave(axes, dim=0), targets.repeat(len(x), 1)]

    def sample_losses(self, batch: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the losses (seeds, count): squared misses of all steps of the chain over 2 d."""
        x, w = batch
        n, d, y = self.problem.examples, self.problem.dimension, x @ w[..., None]
        chain = [torch.zeros_like(w)]
        for _ in range(self.problem.steps):
            miss = x @ chain[-1][..., None] - y
            chain.append(chain[-1] - self.problem.rate / n * (x.transpose(2, 3) @ miss)[..., 0])
        steps = torch.stack(chain, dim=2)
        tokens = torch.nn.functional.pad(torch.cat([x, y], dim=3), (0, d + 1))
        inputs = torch.nn.functional.pad(steps[:, :, :-1], (d + 1, 0))
        inputs = torch.cat([inputs, torch.ones_like(inputs[..., :1])], dim=3)
        scores = tokens @ self.keys[:, None] @ inputs.transpose(2, 3)
        steps_taken = (scores.transpose(2, 3) @ tokens @ self.values.transpose(1, 2)[:, None])[..., d + 1 : -1]
        missed = steps[:, :, :-1] + steps_taken / n - steps[:, :, 1:]
        return torch.sum(missed**2, dim=(2, 3)).div(2.0 * d)

    def measure(self) -> tuple[torch.Tensor, torch.Tensor | Array]:
        """Return the loss on some inputs, and progress by the means of the weights that start above 0."""
        d = self.problem.dimension
        a = self.values[:, d + 1 : -1, :d].diagonal(dim1=1, dim2=2).mean(dim=1)
        b = self.keys[:, :d, d + 1 : -1].diagonal(dim1=1, dim2=2).mean(dim=1)
        weights = torch.stack([a, b, self.keys[:, d, -1]], dim=1).cpu().numpy()
        return self.sample_losses(self.test).mean(dim=1), self.system.progress(weights)


#: Kind of a problem -> its full model.
MODELS: dict[str, type[Model]] = {
    "composition": _Composition,
    "recall": _Recall,
    "causal-graph": _CausalGraph,
    "memory": _Memory,
    "trigger": _TriggerTask,
    "selection": _Selection,
    "policy-gradient": _PolicyGradient,
    "chain": _ChainOfThought,
}


def model_of(problem: TokenProblem, seeds: Sequence[int], device: torch.device) -> Model:
    """Return the full model of a problem."""
    return MODELS[problem.kind](problem, seeds, device)


#: Looks at a run, each of which measures loss and progress; times of learning are found between two looks.
LOOKS = 800


@_own_state()
def simulate(
    problem: TokenProblem,
    *,
    learning_rate: float | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    seeds: int = 8,
    first_seed: int = 0,
    device: str = "auto",
    progress: bool | None = None,
    max_runtime: float | None = None,
    checkpoint: str | os.PathLike[str] | RunFile | None = None,
) -> xr.Dataset:
    r"""Train the full model of a problem by stochastic gradient descent, with autograd on sampled tokens.

    .. math:: \theta \leftarrow \theta - \eta\, \nabla \frac1B \sum_{b=1}^B \ell(\theta; x_b), \qquad t = \eta\,
       \mathrm{step}

    Nothing of the reduction is used. The first half of the seeds has batches of B, the second of 4 B, so that the
    effect of the batch is seen and `compare` can take it away.

    Parameters
    ----------
    problem : TokenProblem
        Such as `dynamics.tokens.Composition`.
    learning_rate : float
        η > 0, dimensionless, per unit of the loss as the problem defines it.
    steps : int
        Both are absent for an associative memory with Gaussian embeddings, of which one step is taken in every draw.
    batch_size : int, optional
        B, of the first half of the seeds. Default: 4; 32 for a chain of thought; 64 for selection; 256 for policy
        gradient, of which a sample is an action, or a group of them for GRPO; of a memory the whole population.
    seeds, first_seed : int
        Even number of runs, at least 4; their seeds are `first_seed` and those after it.
    device : {"auto", "cpu", "cuda"}
        By default the GPU if there is one.
    progress, max_runtime, checkpoint
        As of `sgd_check.simulate`; `sgd_check.resume` goes on from the file bit for bit.

    Returns
    -------
    Dataset
        `loss(seed, time)`, `progress(seed, time, component)`, `learned_time(seed, component)`, the time between two
        looks at which progress passes ½ (NaN: not until the end), and `run_batch_size(seed)` (0: the population).
        Dimensionless. Records that were not reached are NaN; `stop_reason` is "reached_end", "interrupted",
        "max_runtime" or "blown_up" (no run is finite any more). Of Gaussian embeddings `recovery(seed, rank)` and
        `recovered_count(seed)`.

    Raises
    ------
    TypeError, ValueError
        For bad arguments, before any work.

    Examples
    --------
    >>> from dynamics.tokens import Composition
    >>> runs = simulate(Composition(vocabulary=4, hops=2), learning_rate=0.5, steps=200, seeds=4, progress=False)
    >>> dict(runs.progress.sizes)
    {'seed': 4, 'time': 201, 'component': 2}
    >>> runs.learned_time.mean("seed").values.round().tolist()
    [24.0, 62.0]
    """
    check_question(problem, KINDS)
    check_choice("device", device, ("auto", "cpu", "cuda"))
    automatic = "cuda" if torch.cuda.is_available() else "cpu"
    torch_device = torch.device(automatic if device == "auto" else device)
    budget, file = checked_budget(max_runtime), as_run_file(checkpoint)
    if isinstance(problem, AssociativeMemory) and problem.embeddings == "gaussian":
        absent = {
            "learning_rate": learning_rate,
            "steps": steps,
            "batch_size": batch_size,
            "max_runtime": max_runtime,
            "checkpoint": checkpoint,
        }
        for name, value in absent.items():
            require(
                value is None,
                f"Argument `{name}` must be None for Gaussian embeddings, which are one step, but is {shown(value)}.",
            )
        return draw_recovery(problem, _checked_seeds(seeds, first_seed), torch_device)
    rate = checked_number(learning_rate, "learning_rate", positive=True)
    count = checked_integer(steps, "steps", minimum=1)
    batch_size = MODELS[problem.kind].default_batch if batch_size is None else batch_size
    size = None if batch_size is None else checked_integer(batch_size, "batch_size", minimum=1)
    runs = _checked_seeds(seeds, first_seed)
    require(
        len(runs) % 2 == 0,
        f"Argument `seeds` must be even, since half of the runs have larger batches, but is {len(runs)}.",
    )
    check_switch("progress", progress, optional=True)
    looks = np.unique(np.linspace(0, count, min(LOOKS, count) + 1).round()).astype(np.int64)
    plan, half, components = Plan(count, rate, looks, looks), len(runs) // 2, system_of(problem).components
    sizes = [size, None if size is None else 4 * size]
    models = [model_of(problem, part, torch_device) for part in (runs[:half], runs[half:])]
    batches = [None if part is None else Draws(model, part) for model, part in zip(models, sizes, strict=True)]
    engine = TokenRuns(list(zip(models, batches, strict=True)))
    records_of_runs = TokenRecords(len(runs), looks, {"loss": (), "progress": (len(components),)})
    records, time = records_of_runs.records, plan.times(plan.recorded)

    def labelled(run: Any, reason: str) -> xr.Dataset:
        """Return the dataset of the runs so far; `reason` says why they ended."""
        settings = {"answer": "simulation", "learning_rate": rate, "batch_size": size}
        return make_dataset(
            {
                **records,
                "learned_time": _passed(records["progress"], time),
                "run_batch_size": np.repeat([part or 0 for part in sizes], half),
            },
            problem=problem,
            title=f"Stochastic gradient descent on tokens: {problem.kind}",
            coords={"time": time, "seed": list(runs), "component": list(components)},
            solver=settings | {"steps": count, "seeds": len(runs), "first_seed": runs[0], "device": device},
            attributes=settings
            | {"device": str(torch_device), "theory": "tokens", "stop_reason": reason, "wall_seconds": run.seconds},
            leading=("seed",),
            with_leading=("loss", "progress", "learned_time"),
            variables=TOKEN_VARIABLES,
        )

    return run_with_file(engine, plan, records_of_runs, file, labelled, budget=budget, progress=progress)


def _checked_seeds(seeds: object, first_seed: object) -> range:
    """Return the range of seeds of `seeds` runs from `first_seed` on; raise ValueError for fewer than 4 runs."""
    runs = checked_integer(seeds, "seeds", minimum=4, maximum=MOST_RUNS)
    first = checked_integer(first_seed, "first_seed", minimum=0, maximum=2**62)
    return range(first, first + runs)


def _passed(progress: Array, time: Array) -> Array:
    """Return the first times (seeds, components) at which progress (seeds, looks, components) is ½; NaN if never.

    They are linear between looks at the times `time` (looks,).
    """
    first = np.argmax(progress >= 0.5, axis=1)
    low = np.maximum(first - 1, 0)
    after, before = (np.take_along_axis(progress, place[:, None], axis=1)[:, 0] for place in (first, low))
    rise = np.maximum(after - before, 0.0)
    share = np.divide(after - 0.5, rise, out=np.zeros_like(rise), where=rise > 0.0)
    return np.where(after >= 0.5, time[first] - (time[first] - time[low]) * share, np.nan)


class TokenRuns(RunBatch):
    """Runs of models on batches, None for the whole population; the bits of a run depend on its seed alone."""

    def __init__(self, parts: Sequence[tuple[Model, Draws | None]]) -> None:
        self._parts, self._step = parts, 0
        self._parameters = {
            f"parameter_{part}_{number}": parameter
            for part, (model, _) in enumerate(parts)
            for number, parameter in enumerate(model.parameters)
        }

    def running(self) -> AbstractContextManager[None]:
        """Return a context in which torch has one thread: the matrices are small, and threads would wait."""
        return one_torch_thread()

    def advance(self, rates: Array) -> None:
        """Take one step per learning rate."""
        for rate in rates.tolist():
            for model, draws in self._parts:
                model.step(None if draws is None else draws.next(), rate * self._step, rate)
            self._step += 1

    def freeze(self, stopped: NDArray[np.bool_]) -> None:
        """Do nothing: runs that are not finite stay so, and cost no more than others."""

    def measured(self) -> tuple[Array, Array]:
        """Return loss (seeds,) and progress (seeds, components) of all runs."""
        losses, progress = zip(*(model.measured() for model, _ in self._parts), strict=True)
        return np.concatenate(losses), np.concatenate(progress)

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return step, parameters and the state of the generators."""
        arrays = {name: parameter.detach().cpu().numpy().copy() for name, parameter in self._parameters.items()}
        for part, (_, draws) in enumerate(self._parts):
            if draws is not None:
                arrays |= {f"generators_{part}": draws.before.copy(), f"used_{part}": np.array(draws.used)}
        return arrays | {"step": np.array(self._step)}

    @torch.no_grad()
    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Go on from what `state` returned."""
        check_shapes(state, self.state())
        self._step = int(state["step"])
        for name, parameter in self._parameters.items():
            parameter.copy_(torch.as_tensor(state[name]))
        for part, (_, draws) in enumerate(self._parts):
            if draws is not None:
                draws.restore(state[f"generators_{part}"], int(state[f"used_{part}"]))


class Draws:
    """Batches of all seeds, one generator per seed, drawn many at once; `before` are the generators before these."""

    def __init__(self, model: Model, batch: int) -> None:
        self._model, self._batch = model, batch
        self._generators = [torch.Generator().manual_seed(seed) for seed in model.seeds]
        self._steps = max(1, 4096 // batch)
        self.used, self.before = 0, self._words()
        self._parts: list[torch.Tensor] = []

    def next(self) -> list[torch.Tensor]:
        """Return the next batch, (seeds, count, …) of each part."""
        if not self._parts or self.used == self._steps:
            self._draw()
        first = self.used * self._batch
        self.used += 1
        return [part[:, first : first + self._batch] for part in self._parts]

    def _draw(self) -> None:
        """Draw the batches of the next block of steps for all seeds."""
        self.before, self.used = self._words(), 0
        batches = [self._model.draw(generator, self._steps * self._batch) for generator in self._generators]
        self._parts = [torch.stack(parts) for parts in zip(*batches, strict=True)]

    def _words(self) -> NDArray[np.uint8]:
        """Return the states of all generators, (seeds, bytes)."""
        return np.stack([generator.get_state().numpy() for generator in self._generators])

    def restore(self, generators: NDArray[np.generic], used: int) -> None:
        """Continue from these states of the generators, with `used` batches taken."""
        for generator, words in zip(self._generators, generators.astype(np.uint8), strict=True):
            generator.set_state(torch.as_tensor(words))
        self._draw()
        self.used = used


class TokenRecords(Looks):
    """Loss and progress of all runs at every look."""

    def observe(self, step: int, runs: TokenRuns) -> NDArray[np.bool_]:
        """Measure the runs; return which of them have just left the finite numbers."""
        place = self.places[step]
        loss, self.records["progress"][:, place] = runs.measured()
        self.records["loss"][:, place] = loss
        return self.lost(np.isfinite(loss))


def draw_recovery(problem: AssociativeMemory, seeds: Sequence[int], device: torch.device) -> xr.Dataset:
    """Return which items of an associative memory are recovered after one step, in draws of Gaussian embeddings.

    Each seed draws input and output embeddings (N, d), from which one step, or one of smoothed signs, makes the matrix
    of the memory; an item is recovered if its own output has the largest score. The dataset has the share of recovered
    items by bin of ranks (seed, rank), and their number (seed).
    """
    N, d = problem.count, problem.dimension or 0
    ranks, counts = rank_bins(N)
    edges = np.concatenate([[0.0], np.cumsum(counts)[:-1]]).astype(np.intp)
    p = torch.arange(1.0, N + 1.0, dtype=torch.float64, device=device) ** -(problem.frequency_exponent or 0.0)
    # At most 2²⁴ scores are held at once.
    flags, rows, items = np.empty((len(seeds), N)), max(1, 2**24 // N), torch.arange(N, device=device)
    for draw, seed in enumerate(seeds):
        generator = torch.Generator().manual_seed(seed)
        E, U = (torch.randn(N, d, generator=generator, dtype=torch.float64).to(device) / d**0.5 for _ in range(2))
        W = ((U - U.mean(dim=0)) * (p / p.sum())[:, None]).T @ E
        outputs = E @ (W if problem.smoothing is None else smooth_signs(W, problem.smoothing)).T
        best = torch.cat([(outputs[row : row + rows] @ U.T).argmax(dim=1) for row in range(0, N, rows)])
        flags[draw] = (best == items).cpu().numpy()
    values = {"recovery": np.add.reduceat(flags, edges, axis=1) / counts, "rank_count": counts}
    return make_dataset(
        {**values, "recovered_count": flags.sum(axis=1)},
        problem=problem,
        title="Draws of an associative memory with Gaussian embeddings after one step",
        coords={"rank": ranks, "seed": list(seeds)},
        solver={"answer": "simulation", "seeds": len(seeds), "first_seed": seeds[0]},
        attributes={"answer": "simulation", "theory": "tokens", "stop_reason": "reached_end", "device": str(device)},
        leading=("seed",),
        with_leading=("recovery", "recovered_count"),
        variables=TOKEN_VARIABLES,
    )
