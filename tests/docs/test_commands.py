"""What a stranger types: every command on the pages, in their order, and every example, held against what the page says.

That each command can be parsed is tested always, and that it runs with FULL_TESTS=1.
"""

import doctest
import re
import shlex
import shutil
from importlib import import_module

import pytest
from processes import ROOT, python

from dynamics.__main__ import COMMANDS
from dynamics.commands.catalogue import build_parser
from hermite.program import UsageError

#: All pages but the list of changes, whose commands are those of their time.
PAGES = {
    path.stem: path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    if path.name != "history.md"
}
FENCE = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
#: Words that stand for something of the reader's own.
PLACEHOLDERS = {"NAME", "FILE", "…", "my_module:my_function", "tcp://host:8786", "--open", "--help"}
#: What takes more than about a minute, or a cluster: of these it is tested that they would begin.
LONG = {
    "python -m dynamics.laws compute-frontier --coupled --largest-width 256", "python -m dynamics.laws paper --page paper.html",
    "python -m dynamics.laws scaling",
    "python -m dynamics.laws scaling --spectrum 0.25", "python -m dynamics.laws transfer",
    "python -m dynamics.mean_field_study propagation-of-chaos",
    "python -m dynamics.study widths.toml --output here.nc --workers 8",
    "python -m sgd_check.run question.nc -- --activation gelu --coefficients @weights.csv --width 64 --dimension 512 --learning-steps 1,10",
    "python -m sgd_check.study calibration", "python -m sgd_check.study calibration --kinds all --repetitions 31",
    "python -m sgd_check.study epochs", "python -m sgd_check.study calibration --repetitions 400",
    "python -m sgd_check.study full-batch --cut 4 --dimensions 200,400",
    "python -m sgd_check.study sample-complexity",
    "python -m sgd_check.study sample-complexity --k 3,4 --smoothing-exponent 0,0.125,0.25",
    "python -m sgd_check.study step-size", "python -m sgd_check.study transfer",
    "python -m sgd_check.study unstable-discretisation",
}  # fmt: skip
#: What a page says that a command prints or writes.
CLAIMS = {
    "python -m dynamics.solve --k 4 --beta 1.0": ["learned: 16 of 16 directions", "sum formula at this size", "asymptotic", ".nc", ".png"],
    "python -m sgd_check.run small.nc": ["32 runs", "Theory and SGD agree", "small-sgd.nc", "small-sgd.png"],
    "python -m dynamics.report run.nc": ["run.html"],
    "python -m dynamics.study widths.toml": ["widths.nc"],
}  # fmt: skip
#: Tables of a reader: losses over width and samples, and one that falls in steps of a_p ∝ 1/p.
SIZES = [(m, n) for m in (8, 16, 32, 64) for n in (1e3, 1e4, 1e5)]
SURFACE = "width,samples,loss\n" + "".join(f"{m},{n},{0.1 + 2 / m + 30 / n**0.5}\n" for m, n in SIZES)
LEFT = [(t, sum(p**-2 for p in range(1, 17) if 10 * p > t)) for t in (1.2**i for i in range(40))]
CURVE = "time,loss\n" + "".join(f"{t},{loss / LEFT[0][1] + 0.01 / t}\n" for t, loss in LEFT)
#: Files that a page takes from another one.
BORROWED = {"report": {"run.nc": "small.nc", "check.nc": "small-sgd.nc"}}


def without_comment(line):
    return " ".join(line.partition(" #")[0].split()).replace(".venv/bin/", "")


def fenced(page):
    """The commands in the blocks of a page, those that install the program or test all of it apart."""
    blocks = [text for kind, text in FENCE.findall(PAGES[page]) if kind in ("bash", "shell")]
    lines = [without_comment(line).rpartition(" && ")[2] for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("python -m ") and not line.startswith("python -m pytest")]


def inline(page):
    measured = re.compile(r"<!-- benchmark table -->.*?<!-- end of benchmark table -->", flags=re.DOTALL)
    prose = measured.sub("", FENCE.sub("", PAGES[page]))
    return [" ".join(found.split()) for found in re.findall(r"`(?:\.venv/bin/)?(python -m [^`]+)`", prose)]


def is_whole(command):
    return not PLACEHOLDERS & set(shlex.split(command))


def parser_of(module):
    found = import_module(f"{module}.__main__" if hasattr(import_module(module), "__path__") else module)
    if module == "sgd_check.run":
        found = import_module("sgd_check.run.options")
    return build_parser(found.CATALOGUE) if hasattr(found, "CATALOGUE") else found.build_parser()


@pytest.mark.parametrize("page", PAGES)
def test_every_command_on_a_page_can_be_parsed(page):
    for command in filter(is_whole, [*fenced(page), *inline(page)]):
        _, _, module, *words = shlex.split(command)
        if module not in COMMANDS or not words:
            continue
        end = words.index("--") if "--" in words else len(words)  # options of `dynamics.solve` follow it
        try:
            parser_of(module).parse_args(words[:end])
            parser_of("dynamics.solve").parse_args(words[end + 1 :])
        except UsageError as error:
            pytest.fail(f"{command}: {error}")


@pytest.fixture(scope="module")
def files_of_readme(tmp_path_factory):
    """The directory in which the commands of the README ran, and what each printed."""
    folder = tmp_path_factory.mktemp("readme")
    return folder, run_all("README", folder)


def run_all(page, folder):
    """Run the commands of a page in a directory; return what each printed, on stdout and stderr."""
    for kind, text in FENCE.findall(PAGES[page]):
        if kind == "toml" and 'path = "widths.nc"' in text:
            (folder / "widths.toml").write_text(text, encoding="utf-8")
    (folder / "weights.csv").write_text("0.8\n0.6\n", encoding="utf-8")
    (folder / "runs.csv").write_text(CURVE if page == "inverse" else SURFACE, encoding="utf-8")
    (folder / "skills.csv").write_text(
        "skill,time\n" + "".join(f"s{p},{p**1.2}\n" for p in range(1, 9)), encoding="utf-8"
    )
    told = {}
    for command in filter(is_whole, fenced(page)):
        words = [*shlex.split(command)[1:], *(["--dry-run"] if command in LONG else [])]
        done = python(*words, cwd=folder, timeout=900)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        told[command] = done.stdout + done.stderr
    return told


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", [page for page in PAGES if any(map(is_whole, fenced(page)))])
def test_the_commands_of_a_page_run_in_order_and_print_what_it_says(page, files_of_readme, tmp_path):
    folder, told = files_of_readme
    if page != "README":
        for name, source in BORROWED.get(page, {}).items():
            shutil.copy(folder / source, tmp_path / name)
        folder, told = tmp_path, run_all(page, tmp_path)
    for command, text in told.items():
        for claim in CLAIMS.get(command, ()):
            assert claim in text, f"{command} does not print {claim!r}"
            assert not claim.endswith((".png", ".html")) or list(folder.glob(f"*{claim}"))


@pytest.mark.parametrize("page", PAGES)
def test_every_line_to_copy_names_the_environment(page):
    """But the line that makes one: a shell finds no `python`, or one without this program."""
    for kind, text in FENCE.findall(PAGES[page]):
        lines = [line for line in text.splitlines() if kind in ("bash", "shell") or line.startswith("$ ")]
        for command in (part.strip("$ ") for line in lines for part in line.split(" && ")):
            if re.match(r"(python|pip|pytest|sphinx-build|feature-emergence)\b", command):
                assert re.match(r"python3? -m venv ", command), command


@pytest.mark.parametrize("page", [page for page in PAGES if "\n$ .venv/bin/python -m" in PAGES[page]])
def test_output_that_a_page_shows_is_what_the_command_prints(page):
    for kind, text in FENCE.findall(PAGES[page]):
        if kind == "text" and text.startswith("$ .venv/bin/python -m"):
            command, _, shown = text.partition("\n")
            done = python(*shlex.split(command)[2:])
            assert done.stdout == shown, command


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", [page for page in PAGES if ">>> " in PAGES[page]])
def test_the_examples_of_a_page_print_what_it_shows(page, here):
    if "dynamics.load(" in PAGES[page]:  # what the commands of the page wrote
        run_all(page, here)
    example = doctest.DocTestParser().get_doctest(PAGES[page], {}, page, f"{page}.md", 0)
    assert doctest.DocTestRunner().run(example).failed == 0
