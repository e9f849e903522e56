"""Command line: `python -m dynamics.tokens NAME`, how a model learns from tokens, by its exact reduction."""

from __future__ import annotations

from collections.abc import Sequence
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple

from dynamics.commands.catalogue import Catalogue, StudyCommand, run_command
from dynamics.commands.options import (
    Option,
    Values,
    integers,
    natural_number,
    non_negative,
    numbers,
    plain,
    positive,
    positive_integer,
)
from dynamics.commands.program import run_program

if TYPE_CHECKING:
    import xarray as xr

EXAMPLES = """\
examples:
  python -m dynamics.tokens composition --vocabulary 6 --hops 4 --plot staircase.png
      hops 1, 2 and 4 are learned one after the other
  python -m dynamics.tokens composition --data curriculum --learning-rate 0.25
      each hop in a stage of its own, by gradient descent
  python -m dynamics.tokens recall --relations 16 --subjects 4 --answers 4
      with few subjects these are learned before the relations
  python -m dynamics.tokens trigger --triggers 16 --plot shortcut.png
      the shortcut by position wins out of distribution, where kappa R > 1
  python -m dynamics.tokens policy-gradient --group-sizes 1,1,6,24 --rewards 0.8,1,0.3,0 --true-rewards 1,0.8,0.3,0
      a reward model that ranks two actions wrongly, and how soon it teaches

`python -m dynamics.tokens NAME --help` lists the options of a problem. stdout holds the result, stderr everything else.
exit codes: 0 done, 1 the run failed or its answer is not where it was to be (what was computed is kept and named), 2
usage, 130 interrupted (what was computed is kept and named)
"""


def _parents(text: str) -> tuple[int | None, ...]:
    """Return the parents in a text as a list of integers, with None for a token without one."""
    return tuple(None if part.strip() == "-" else natural_number(part) for part in text.split(","))


TEST_LENGTH = Option("test-length", positive_integer, "tokens of a test at another length", "N", group="answer")
LEARNING_RATE = Option("learning-rate", positive, "step of gradient descent [none: the flow]", "ETA", group="answer")


class TokenStudy(NamedTuple):
    """A problem and the settings with which it is solved."""

    problem: Any
    learning_rate: float | None
    progress: bool | None

    def work(self) -> str:
        """Return the problem as text."""
        return f"{self.problem}"

    def run(self) -> xr.Dataset:
        """Solve it; after an interruption or a failure, return the part that was computed."""
        from dynamics.tokens.answers import solve

        return solve(self.problem, learning_rate=self.learning_rate, progress=self.progress, on_failure="return")


class TokenCommand(StudyCommand):
    """A problem as a command: an option for each of its fields, and the learning rate."""

    def prepare(self, settings: Values, *, progress: bool | None) -> TokenStudy:
        """Return the problem, checked."""
        usual = {option.key: option.read(option.default) for option in self.options if option.default is not None}
        fields = {name: value for name, value in (usual | dict(settings)).items() if name != LEARNING_RATE.key}
        if fields.get("embeddings") == "orthonormal":
            fields.setdefault("group_sizes", (2, 4, 8, 16, 32))
        if "embeddings" in fields and "frequencies" not in fields:
            fields.setdefault("frequency_exponent", 1.5)
        return TokenStudy(resolve_name(self.prepares)(**fields), settings.get(LEARNING_RATE.key), progress)


def _command(problem: str, about: str, *options: Option) -> StudyCommand:
    """Return the command that solves one kind of problem, with its options."""
    return TokenCommand(f"dynamics.tokens.problems:{problem}", about, (*options, LEARNING_RATE))


STUDIES: dict[str, StudyCommand] = {
    "composition": _command(
        "Composition",
        "compose hidden permutations: hops 1, 2, 4, ... are learned one after the other",
        Option("vocabulary", positive_integer, "number of symbols, at least 2", "N", "6"),
        Option("hops", positive_integer, "number of permutations, a power of 2", "K", "4"),
        Option("data", plain, "what is trained", None, "mixture", ("mixture", "curriculum", "hardest")),
        Option("weights", numbers, "weights of hops 1, 2, 4, ... in a mixture [equal]", "W,W,..."),
        Option("stage-time", positive, "time of each stage of a curriculum [12 times that of hop 1]", "T"),
        Option("loss", plain, "loss", None, "correlation", ("correlation", "cross-entropy")),
        Option("initial-score", non_negative, "score of the right keys at the start", "E", "0"),
    ),
    "recall": _command(
        "FactualRecall",
        "recall the answer to a subject and a relation: the relation is learned first, or the subject",
        Option("relations", positive_integer, "number of relations, at least 2", "R", "4"),
        Option("subjects", positive_integer, "number of subjects, a multiple of that of answers", "S", "32"),
        Option("answers", positive_integer, "number of answers to one relation, at least 2", "D", "4"),
        Option("initial-scale", positive, "scale of the start", "ALPHA", "1e-3"),
        Option("noise-tokens", natural_number, "number of tokens that say nothing", "Z", "0"),
        Option("sequence-length", positive_integer, "tokens of a sequence", "L", "2"),
    ),
    "causal-graph": _command(
        "CausalGraph",
        "find the parents of tokens in a latent graph: an induction head forms token by token",
        Option("parents", _parents, "indices of the parents from 0, - at a root", "P,P,...", "-,0,1,2,3,4,5,6"),
        Option("vocabulary", positive_integer, "number of symbols, at least 2", "S", "5"),
        Option("persistence", positive, "probability that a token follows its parent", "Q", "0.9"),
        Option("second-layer", plain, "second layer", None, "linear", ("linear", "softmax")),
        Option("beta", positive, "inverse temperature of a softmax", "BETA"),
        Option("transitions", plain, "transitions", None, "permutation", ("permutation", "dirichlet")),
        TEST_LENGTH,
    ),
    "selection": _command(
        "Selection",
        "copy the tokens that a prompt asks for: a plateau until there are as many heads, and other lengths",
        Option("tokens", positive_integer, "number of tokens, at least 2", "N", "16"),
        Option("selected", positive_integer, "number of tokens that are asked for", "Q", "1"),
        Option("heads", positive_integer, "number of heads", "H", "1"),
        Option("initial-scale", non_negative, "scale of the start, above 0 for several heads", "S", "0"),
        Option("seed", natural_number, "seed of the start", "S", "0"),
        TEST_LENGTH,
    ),
    "memory": _command(
        "AssociativeMemory",
        "store pairs in a matrix: a staircase by frequency, or by Muon all at once",
        Option("group-sizes", integers, "numbers of items of one frequency each [2,4,8,16,32]", "N,N,..."),
        Option("frequencies", numbers, "frequencies of an item of each group", "P,P,..."),
        Option("frequency-exponent", non_negative, "decay of frequencies in the rank [none given: 1.5]", "A"),
        Option("optimizer", plain, "optimizer", None, "gradient", ("gradient", "spectral")),
        Option("smoothing", positive, "singular value from which the spectral optimizer is a sign", "LAMBDA"),
        Option("embeddings", plain, "embeddings", None, "orthonormal", ("orthonormal", "gaussian")),
        Option("items", positive_integer, "number of items with Gaussian embeddings, instead of groups", "N"),
        Option("dimension", positive_integer, "dimension of the embeddings [number of items]", "D"),
    ),
    "trigger": _command(
        "TriggerTask",
        "repeat what followed a trigger: an induction head, or a positional shortcut that fails elsewhere",
        Option("symbols", positive_integer, "number of symbols other than triggers, at least 2", "S", "50"),
        Option("gaps", integers, "symbols before the first trigger in training", "L,L,...", "6,7,8,9,10,11,12,13"),
        Option("gap-weights", numbers, "probabilities of the gaps [equal]", "P,P,..."),
        Option("triggers", positive, "number of triggers, at least 1", "KAPPA", "1"),
        Option("shift", positive_integer, "by how much the first trigger is early out of distribution", "N", "1"),
        TEST_LENGTH,
    ),
    "policy-gradient": _command(
        "PolicyGradient",
        "improve a policy by its rewards: their variance sets the speed, not how well they rank",
        Option("group-sizes", integers, "numbers of actions of one reward and start each", "N,N,...", "1,15"),
        Option("rewards", numbers, "reward of an action of each group", "R,R,...", "1,0"),
        Option("initial-logits", numbers, "logit of an action of each group at the start [0]", "L,L,..."),
        Option("objective", plain, "objective", None, "plain", ("plain", "kl", "a-star", "grpo")),
        Option("kl-weight", positive, "weight of the KL divergence from the start", "BETA"),
        Option("group-samples", positive_integer, "samples of a group of grpo [infinitely many]", "G"),
        Option("true-rewards", numbers, "what the rewards stand for, of an action of each group", "R,R,..."),
    ),
    "chain": _command(
        "ChainOfThought",
        "solve linear regression in context by a chain of steps: a single step is learned first",
        Option("dimension", positive_integer, "number of components of an example, at least 2", "D", "10"),
        Option("examples", positive_integer, "number of examples", "N", "20"),
        Option("steps", positive_integer, "steps of the chain, at least 2", "K", "10"),
        Option("rate", positive, "rate of the steps", "ETA", "0.3"),
        Option("initial-scale", positive, "scale of the weights at the start", "S", "0.05"),
    ),
}

CATALOGUE = Catalogue(
    prog="dynamics.tokens",
    description="Predict how models of attention and memory learn, in stages, by exact reductions.",
    examples=EXAMPLES,
    studies=STUDIES,
    findings="dynamics.report.tokens:token_findings",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command(CATALOGUE, arguments)


if __name__ == "__main__":
    run_program(main)
