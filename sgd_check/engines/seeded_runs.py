"""Runs that each draw samples from generators of their seed, advanced block by block on several threads.

The generators of a seed are numpy's SFC64, whose state is six integers; each stream of a seed has a key of its own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import metadata
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dynamics.cores import available_cores
from hermite.arrays import Array
from hermite.text.messages import require
from sgd_check.engines.registry import Engine

Share = TypeVar("Share")
Result = TypeVar("Result")


#: Keys of the streams: coordinates, lengths and label noise of projections; samples in R^d, the order in which they
#: are used again, directions of zeroth order, and dense axes for optimizers that see coordinates.
AXES, LENGTHS, LABEL_NOISE, SAMPLES, ORDER, DIRECTIONS, DENSE_AXES = 0, 1, 2, 1000, 1001, 1002, 1003


def generators(seed: int, keys: Iterable[int]) -> list[np.random.Generator]:
    """Return one generator of a seed for each key; generators of other seeds or keys are independent."""
    children = [np.random.SeedSequence(seed, spawn_key=(key,)) for key in keys]
    return [np.random.Generator(np.random.SFC64(child)) for child in children]


def words_of(generator: np.random.Generator) -> NDArray[np.uint64]:
    """Return the state of an SFC64 as six integers: four words, whether half of one is left over, that half."""
    state = generator.bit_generator.state
    return np.array([*state["state"]["state"].tolist(), state["has_uint32"], state["uinteger"]], dtype=np.uint64)


def set_words(generator: np.random.Generator, words: NDArray[np.generic]) -> None:
    """Set the state of an SFC64 to the words that `words_of` returned."""
    generator.bit_generator.state = {
        "bit_generator": "SFC64",
        "state": {"state": np.array(words[:4], dtype=np.uint64)},
        "has_uint32": int(words[4]),
        "uinteger": int(words[5]),
    }


class RunThreads:
    """A pool of `count` threads, which live while the engine is running; a single thread is that of the caller."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool: ThreadPoolExecutor | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Return the context in which the threads live."""
        pool = ThreadPoolExecutor(self.count, thread_name_prefix="sgd") if self.count > 1 else nullcontext()
        try:
            with pool as self._pool:
                yield
        finally:
            self._pool = None

    @property
    def active_count(self) -> int:
        """Number of threads that can share work now."""
        return 1 if self._pool is None else self.count

    def map(self, work: Callable[[Share], Result], shares: Sequence[Share]) -> list[Result]:
        """Return the results of `work` on every share, in order."""
        return list((map if self._pool is None or len(shares) == 1 else self._pool.map)(work, shares))


# Numbers drawn for one seed at a time, which stay in the second-level cache until they are used.
BLOCK_NUMBERS = 2**14
# Below this many operations per seed between two calls, threads wait for the interpreter rather than share work.
THREADED_OPERATIONS = 2**15

#: Coordinates, lengths and labels of a block of steps, (steps, numbers) each.
Draws = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]


def check_shapes(state: Mapping[str, NDArray[np.generic]], expected: Mapping[str, Any]) -> None:
    """Raise KeyError or ValueError unless a state has arrays of the names and shapes of those `expected`."""
    for name, array in expected.items():
        shape, stored = tuple(array.shape), state[name].shape
        require(stored == shape, f"Argument `state` must hold `{name}` of shape {shape}, but has {stored}.")


class StepDraws(NamedTuple):
    """The random numbers of a step of `batch` samples: `numbers` normal ones, and `gammas` gamma ones of `shapes`.

    `operations` is about how many operations of floating point a step takes.
    """

    batch: int
    numbers: int
    shapes: float | Array
    gammas: int
    operations: int


class SeededRuns(Engine):
    """Independent runs, one per seed, whose arrays begin as those of `start`; each has a generator per key of `keys`.

    Generators draw in the order of the steps, so that the bits of a seed depend on no other seed and on no thread.
    """

    def __init__(self, seeds: Sequence[int], start: Mapping[str, Array], keys: Sequence[int], link_name: str) -> None:
        """Repeat the arrays of `start` for every seed, (seeds, …), and make the generators of each seed.

        `keys` are the generators of a seed, by what they draw; `link_name` is recorded in the attributes.
        """
        self._state = {name: np.repeat(array[None], len(seeds), axis=0) for name, array in start.items()}
        self._running = np.ones(len(seeds), dtype=bool)
        self._generators = [generators(seed, keys) for seed in seeds]
        self._threads = RunThreads(min(len(seeds), available_cores()))
        self.attributes = {
            "device": "cpu",
            "dtype": "float64",
            "simulated_link": link_name,
            "numba_version": metadata.version("numba"),
            "random_numbers": f"SFC64 of numpy {np.__version__}",
            "threads": self._threads.count,
        }

    def running(self) -> AbstractContextManager[None]:
        """Return a context in which the seeds share threads; they end with it."""
        return self._threads.running()

    def freeze(self, stopped: NDArray[np.bool_]) -> None:
        """Turn the marked runs to NaN and step them no more."""
        for array in self._state.values():
            array[stopped] = np.nan
        self._running &= ~stopped


class SteppedRuns(SeededRuns):
    """Runs that take every step and are resumable, however cut; a subclass says how a block of steps is taken."""

    def __init__(
        self, seeds: Sequence[int], start: Mapping[str, Array], drawn: StepDraws, label_noise: float, link_name: str
    ) -> None:
        """Begin runs whose steps draw `drawn` from three generators per seed: axes, lengths and label noise.

        `label_noise` is its standard deviation. A thread has memory for the random numbers of a block of steps.
        """
        super().__init__(seeds, start, (AXES, LENGTHS, LABEL_NOISE), link_name)
        self._drawn, self._noise = drawn, label_noise
        self._block = block = max(BLOCK_NUMBERS // drawn.numbers, 16)
        columns = drawn.numbers, drawn.gammas, drawn.batch
        #: Per thread the draws of a block of steps.
        self._benches = [[np.zeros((block, count)) for count in columns] for _ in range(self._threads.count)]

    @abstractmethod
    def _take(self, arrays: list[Array], rates: Array, draws: Draws) -> int:
        """Move the arrays of a run at rates η/B, at most a block; return how many steps were taken before it failed."""

    def advance(self, rates: Array) -> None:
        """Take one step per learning rate; a run that is not finite any more stays NaN and costs nothing."""
        active = np.flatnonzero(self._running).tolist()
        count = self._threads.active_count if rates.size * self._drawn.operations >= THREADED_OPERATIONS else 1
        shares = [(active[k::count], self._benches[k]) for k in range(count)]
        self._threads.map(lambda share: self._advance_seeds(share[0], rates, share[1]), shares)

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays of all runs, "running" (seeds,) and "generators" (seeds, streams, 6 words)."""
        return {
            **{name: array.copy() for name, array in self._state.items()},
            "running": self._running.copy(),
            "generators": np.array([[words_of(stream) for stream in streams] for streams in self._generators]),
        }

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Go on from what `state` returned."""
        check_shapes(state, self.state())
        for name, array in {**self._state, "running": self._running}.items():
            array[:] = state[name]
        for streams, stored in zip(self._generators, state["generators"], strict=True):
            for stream, words in zip(streams, stored, strict=True):
                set_words(stream, words)

    def _advance_seeds(self, seeds: list[int], rates: Array, bench: list[Array]) -> None:
        """Take the steps of the runs `seeds` one after the other, in blocks.

        `bench` is one thread's memory for the draws.
        """
        for seed in seeds:
            arrays = [array[seed] for array in self._state.values()]
            axes, lengths, labels = self._generators[seed]
            for first in range(0, rates.size, self._block):
                part = rates[first : first + self._block]
                samples, gammas, noise = (array[: part.size] for array in bench)
                axes.standard_normal(out=samples)
                if gammas.size:
                    lengths.standard_gamma(self._drawn.shapes, out=gammas)
                if self._noise > 0:
                    labels.standard_normal(out=noise)
                    noise *= self._noise
                else:
                    noise[:] = 0.0
                if self._take(arrays, part / self._drawn.batch, (samples, gammas, noise)) < part.size:
                    self._running[seed] = False
                    for array in arrays:
                        array[...] = np.nan
                    break
