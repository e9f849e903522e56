"""Command line: `python -m dynamics.tokens NAME`, how a model learns from tokens, by its exact reduction."""

from __future__ import annotations

from collections.abc import Sequence
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple

from dynamics.commands.catalogue import Catalogue, StudyCommand, run_command, studies_of
from dynamics.commands.options import Option, Values, positive
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
"""

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

    @property
    def options(self) -> tuple[Option, ...]:
        """An option for each field, and the learning rate."""
        return (*super().options, LEARNING_RATE)

    def prepare(self, settings: Values, *, progress: bool | None) -> TokenStudy:
        """Return the problem, checked."""
        usual = {option.key: option.read(option.default) for option in self.options if option.default is not None}
        fields = {name: value for name, value in (usual | dict(settings)).items() if name != LEARNING_RATE.key}
        if fields.get("embeddings") == "orthonormal":
            fields.setdefault("group_sizes", (2, 4, 8, 16, 32))
        if "embeddings" in fields and "frequencies" not in fields:
            fields.setdefault("frequency_exponent", 1.5)
        return TokenStudy(resolve_name(self.prepares)(**fields), settings.get(LEARNING_RATE.key), progress)


STUDIES = studies_of(
    """
  test-length | N | tokens of a test at another length | answer
composition | dynamics.tokens.problems:Composition |
    compose hidden permutations: hops 1, 2, 4, ... are learned one after the other
  vocabulary | N=6 | number of symbols, at least 2
  hops | K=4 | number of permutations, a power of 2
  data | | what is trained
  weights | W,W,... | weights of hops 1, 2, 4, ... in a mixture [equal]
  stage-time | T | time of each stage of a curriculum [12 times that of hop 1]
  loss | | loss
  initial-score | E | score of the right keys at the start
recall | dynamics.tokens.problems:FactualRecall |
    recall the answer to a subject and a relation: the relation is learned first, or the subject
  relations | R=4 | number of relations, at least 2
  subjects | S=32 | number of subjects, a multiple of that of answers
  answers | D=4 | number of answers to one relation, at least 2
  initial-scale | ALPHA=1e-3 | scale of the start
  noise-tokens | Z | number of tokens that say nothing
  sequence-length | L | tokens of a sequence
causal-graph | dynamics.tokens.problems:CausalGraph |
    find the parents of tokens in a latent graph: an induction head forms token by token
  parents | P,P,...=-,0,1,2,3,4,5,6 | indices of the parents from 0, - at a root
  vocabulary | S=5 | number of symbols, at least 2
  persistence | Q=0.9 | probability that a token follows its parent
  second-layer | | second layer
  beta | BETA | inverse temperature of a softmax
  transitions | | transitions
selection | dynamics.tokens.problems:Selection |
    copy the tokens that a prompt asks for: a plateau until there are as many heads, and other lengths
  tokens | N=16 | number of tokens, at least 2
  selected | Q=1 | number of tokens that are asked for
  heads | H=1 | number of heads
  initial-scale | S | scale of the start, above 0 for several heads
  seed | S | seed of the start
memory | dynamics.tokens.problems:AssociativeMemory |
    store pairs in a matrix: a staircase by frequency, or by Muon all at once
  group-sizes | N,N,... | numbers of items of one frequency each [2,4,8,16,32]
  frequencies | P,P,... | frequencies of an item of each group
  frequency-exponent | A | decay of frequencies in the rank [none given: 1.5]
  optimizer | | optimizer
  smoothing | LAMBDA | singular value from which the spectral optimizer is a sign
  embeddings | | embeddings
  items | N | number of items with Gaussian embeddings, instead of groups
  dimension | D | dimension of the embeddings [number of items]
trigger | dynamics.tokens.problems:TriggerTask |
    repeat what followed a trigger: an induction head, or a positional shortcut that fails elsewhere
  symbols | S=50 | number of symbols other than triggers, at least 2
  gaps | L,L,...=6,7,8,9,10,11,12,13 | symbols before the first trigger in training
  gap-weights | P,P,... | probabilities of the gaps [equal]
  triggers | KAPPA | number of triggers, at least 1
  shift | N | by how much the first trigger is early out of distribution
policy-gradient | dynamics.tokens.problems:PolicyGradient |
    improve a policy by its rewards: their variance sets the speed, not how well they rank
  group-sizes | N,N,...=1,15 | numbers of actions of one reward and start each
  rewards | R,R,...=1,0 | reward of an action of each group
  initial-logits | L,L,... | logit of an action of each group at the start [0]
  objective | | objective
  kl-weight | BETA | weight of the KL divergence from the start
  group-samples | G | samples of a group of grpo [infinitely many]
  true-rewards | R,R,... | what the rewards stand for, of an action of each group
chain | dynamics.tokens.problems:ChainOfThought |
    solve linear regression in context by a chain of steps: a single step is learned first
  dimension | D=10 | number of components of an example, at least 2
  examples | N=20 | number of examples
  steps | K=10 | steps of the chain, at least 2
  rate | ETA=0.3 | rate of the steps
  initial-scale | S=0.05 | scale of the weights at the start
""",
    TokenCommand,
)

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
