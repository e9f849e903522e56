"""Command lines: `feature-emergence COMMAND …`, and `python -m dynamics`, which lists the commands by their modules."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence

from dynamics.commands.parsing import EXIT_DONE, UsageError, command_parser, exit_code_of, tell
from dynamics.commands.program import run_program
from hermite.program import PROGRAM, TYPED
from hermite.text.messages import not_a_choice

#: Name in `feature-emergence NAME` -> module and purpose; the names of commands that sample SGD begin with `check`.
TABLE = {
    "exponents": ("hermite.exponents", "the exponents of a link, and the samples that they ask for"),
    "solve": ("dynamics.solve", "one problem: emergence times, overlaps and loss over time"),
    "check": ("sgd_check.run", "a prediction held against online SGD on sampled data"),
    "kernel": ("dynamics.lazy_kernel", "samples after which a kernel learns the same teacher"),
    "tokens": ("dynamics.tokens", "staircases that attention and memories learn from tokens"),
    "check-tokens": ("sgd_check.tokens", "a prediction on tokens held against runs of the full model"),
    "study": ("dynamics.study", "a grid of problems, answered in parallel, from a TOML file"),
    "laws": ("dynamics.laws", "scaling laws of the theory alone, each beside its prediction"),
    "mean-field-study": ("dynamics.mean_field_study", "networks of many widths against their mean field"),
    "check-study": ("sgd_check.study", "families of runs: sample complexity, step size, transfer"),
    "report": ("dynamics.report", "any result file as one HTML page"),
    "compile": ("dynamics.compile", "all functions compiled beforehand, with all cores"),
}
COMMANDS = dict(TABLE.values())
NAMES = {name: module for name, (module, _) in TABLE.items()}
ABOUT = "How two-layer networks learn features: the theory, and the SGD that checks it."


def main(arguments: Sequence[str] | None = None) -> int:
    """List the commands by their modules, or run the one that is named; return the exit code."""
    alike = f"The same are commands of `{PROGRAM}`: {', '.join(NAMES)}."
    return _run(arguments, {f"python -m {module}": line for module, line in COMMANDS.items()}, f"\n\n{alike}")


def console(arguments: Sequence[str] | None = None) -> int:
    """Run `feature-emergence COMMAND …`, or list the commands; return the exit code."""
    TYPED["dynamics"] = PROGRAM
    return _run(arguments, {f"{PROGRAM} {name}": COMMANDS[module] for name, module in NAMES.items()}, "")


def _run(arguments: Sequence[str] | None, lines: dict[str, str], end: str) -> int:
    """Run the command that the arguments name, or list all commands; return the exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words and words[0] in NAMES:
        name, sys.argv[1:] = words[0], words[1:]
        TYPED[NAMES[name]] = f"{PROGRAM} {name}"
        runpy.run_module(NAMES[name], run_name="__main__", alter_sys=True)
        return EXIT_DONE
    widest = max(map(len, lines))
    command_list = "commands, each with --help:\n" + "\n".join(
        f"  {name:{widest}}  {line}" for name, line in lines.items()
    )

    def tell_commands() -> int:
        """Print all commands; UsageError for a name that is none."""
        if words and not words[0].startswith("-"):
            raise UsageError(not_a_choice("Argument COMMAND", words[0], NAMES, quoted=False))
        command_parser("dynamics", ABOUT, command_list + end).parse_args(words)
        tell(f"{ABOUT}\n\n{command_list}{end}")
        return EXIT_DONE

    return exit_code_of(tell_commands)


if __name__ == "__main__":
    run_program(main, light=False)
