"""Options that are declared once: the tables of the commands against the signatures that take them."""

import inspect
import re
from importlib import import_module
from operator import attrgetter

import pytest
import signatures
from processes import ROOT

import dynamics
from dynamics import lazy_kernel, mean_field_study
from dynamics import study as sweep_study
from dynamics.commands.catalogue import build_parser, options_of
from dynamics.commands.options import GROUPS, SOLVER_OPTIONS, switch
from dynamics.commands.parsing import UsageError, completed, read_option
from dynamics.laws import __main__ as laws
from dynamics.solve import __main__ as solve
from dynamics.tokens import __main__ as tokens
from sgd_check import study as sgd_study
from sgd_check.run import options as run
from sgd_check.tokens import __main__ as tokens_check

STUDIES = [
    pytest.param(study, id=f"{catalogue.prog} {name}")
    for catalogue in (laws.CATALOGUE, mean_field_study.CATALOGUE, sgd_study.CATALOGUE)
    for name, study in catalogue.studies.items()
]


#: Parser, arguments and options of every command that takes a file of options.
COMMANDS = [
    pytest.param(solve.build_parser(), [], (*solve.OPTIONS, *solve.COMMAND_OPTIONS), id="solve"),
    pytest.param(run.build_parser(), ["run.nc"], run.OPTIONS, id="run"),
    pytest.param(lazy_kernel.build_parser(), ["he4"], lazy_kernel.OPTIONS, id="kernel"),
    pytest.param(tokens_check.build_parser(), ["run.nc"], tokens_check.ALL_OPTIONS, id="check of tokens"),
    *(
        pytest.param(
            build_parser(catalogue),
            [name, *(["run.csv"] if study.argument else [])],
            options_of(name, study),
            id=f"{catalogue.prog} {name}",
        )
        for catalogue in (laws.CATALOGUE, mean_field_study.CATALOGUE, sgd_study.CATALOGUE, tokens.CATALOGUE)
        for name, study in catalogue.studies.items()
    ),
]


@pytest.mark.parametrize(("parser", "arguments", "options"), COMMANDS)
def test_a_file_of_options_takes_every_option_as_it_is_typed(parser, arguments, options, tmp_path):
    path = tmp_path / "options.toml"
    from_file = [*arguments, "--config", str(path)]
    positional = ("name", "prediction", "table", "link", "curves", "version")
    flags = {flag for flag in parser.values(arguments) if flag not in positional}
    assert {option.key for option in options} == flags
    for option in options:
        if option.name == "config":
            continue
        bare = option.read is switch
        typed = parser.values([*arguments, f"--{option.name}", *([] if bare else ["0.5"])])
        for spelled in {option.name, option.name.replace("-", "_")}:
            path.write_text(f"{spelled} = {'true' if bare else '0.5'}\n", encoding="utf-8")
            assert {**completed(parser.values(from_file), options), "config": None} == typed, option.name
        path.write_text(f"{option.name} = {'false' if bare else '[1, 2]'}\n", encoding="utf-8")
        found = completed(parser.values([*from_file, *([] if bare else [f"--{option.name}", "3"])]), options)
        assert found[option.key] == (False if bare else "3"), "flags win"
    path.write_text("quite = true\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"options of this command only, but has 'quite'.* Did you mean 'quiet'"):
        completed(parser.values(from_file), options)
    path.write_text("quiet = 1\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"^Option --quiet must be true or false in a file, but is 1\.$"):
        completed(parser.values(from_file), options)


def listed(text):
    """Heading of a help text -> the flags below it, in order."""
    found = {}
    for line in text.splitlines():
        if re.fullmatch(r"[a-z -]+:", line):
            flags = found.setdefault(line[:-1], [])
        elif flag := re.match(r"  --([a-z-]+)", line):
            flags.append(flag[1])
    return {heading: flags for heading, flags in found.items() if flags and heading != "options"}


SWEEP = pytest.param(sweep_study.build_parser(), ["study.toml"], sweep_study.OPTIONS, id="sweep")


@pytest.mark.parametrize(("parser", "arguments", "options"), [*COMMANDS, SWEEP])
def test_help_lists_each_option_once_below_the_heading_of_its_group(parser, arguments, options, capsys):
    with pytest.raises(SystemExit):
        parser.parse_args([*arguments, "--help"])
    text = capsys.readouterr().out
    names = {heading: [option.name for option in options if option.group == heading] for heading in GROUPS}
    assert listed(text) == {heading: flags for heading, flags in names.items() if flags}
    assert [heading for heading in GROUPS if names[heading]] == list(listed(text)), "in the order of the groups"
    assert "[options]" in text.partition("\n")[0]


def test_help_of_a_solve_begins_with_what_is_asked_most(capsys):
    with pytest.raises(SystemExit):
        solve.main(["--help"])
    found = listed(capsys.readouterr().out)
    assert list(found)[:3] == ["problem", "answer", "output"]
    assert [found[heading][0] for heading in list(found)[:3]] == ["k", "model", "output"]
    assert {"rtol", "atol", "method"} <= set(found["answer details"])
    assert "biases" in found["two-layer networks"]


def test_every_choice_of_every_option_is_found_again_without_a_letter_or_its_end():
    options = {option for command in COMMANDS for option in command.values[2] if option.choices}
    assert len(options) >= 12
    for option in options:
        for choice in (choice for choice in option.choices if len(choice) > 3):
            for typed in (choice[0] + choice[2:], choice[:-1]):
                with pytest.raises(UsageError, match=r" Did you mean '(.*)'\?$") as caught:
                    read_option(option, typed)
                assert str(caught.value).endswith(f"{choice!r}?"), typed


@pytest.mark.parametrize("package", ["dynamics", "sgd_check"])
def test_the_stored_signatures_are_those_of_the_functions(package):
    """`python tests/signatures.py` renews them."""
    assert (ROOT / package / "signatures.json").read_text(encoding="utf-8") == signatures.table(package)


def parameters_of(study):
    module, _, name = study.prepares.partition(":")
    return inspect.signature(attrgetter(name)(import_module(module))).parameters


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_has_an_option_for_each_setting_with_its_default(study):
    parameters = parameters_of(study)
    argument = {study.argument} - {""}
    assert {option.key for option in study.options} | {"progress"} | argument == set(parameters)
    for option in study.options:
        if option.default is not None:
            assert option.read(option.default) == parameters[option.key].default, option.name
        elif not option.help.endswith("]"):
            assert parameters[option.key].default in (None, False, inspect.Parameter.empty), option.name


def test_the_options_of_a_solve_have_the_defaults_of_its_functions():
    for model, function in (("overlaps", dynamics.solve_overlaps), ("mean-field", dynamics.solve_mean_field)):
        parameters = inspect.signature(function).parameters
        for option in SOLVER_OPTIONS:
            if model in option.models and option.key in parameters and option.default not in (None, "auto"):
                assert option.read(option.default) == parameters[option.key].default, option.name
