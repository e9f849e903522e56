"""Bad TOML: values that a key may not have, keys that there are not, and text that is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import fuzz_values as bad
from processes import SMALL_STUDY

from dynamics.commands.options import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

#: TOML values that are no number, and no list of numbers.
NO_NUMBERS = ("true", "false", "1979-05-27", "07:32:00", "{ a = 1 }", "[[]]", '"four"', '""', "nan", "-nan", "inf", "-inf",
              "[true]", '["a"]', "{}", '"1; id"', '"$(id)"', "'''\n'''", "-1", "-0.5", "-1e300", "[-1]", "[nan]",
              "9" * 400)  # fmt: skip
#: Whole files that are no TOML, or too much of it.
MALFORMED = (
    b"x =", b"[", b"]", b"[problem", b"= 3", b"k = ", b"k = 4 4", b'k = "', b"k = '''", b"k = 4\nk = 4", b"[a]\n[a]",
    b"\xff\xfe", b"\x00", b"k = \x00", b"\x80\x04cos\nsystem\n", b"<html>", b"{}", b"k: 4", b"k = 4,", b"k = 04",
    b"[problem]\nk = 1e", b"k = [1, 2", b"k = {a = 1", b"\xef\xbb\xbf\xef\xbb\xbfk = 4", b"k = 1979-13-45", b"#\x01",
    b"\xed\xa0\x80", b"k = [" * 3000, b"k = " + b"[" * 5000 + b"]" * 5000, b"a." * 5000 + b"a = 1", b"x" * 2_000_000,
    b"k = " + b"9" * 10_000, b"# " + b"y" * 2_000_000, b"k = 4\n" * 400_000, b"'''" * 1001, b"k = 0x" + b"f" * 9000,
)  # fmt: skip
STUDY_LINES = {
    "problem": ("k = {}", "num_directions = {}", "width = {}", "dimension = {}", "beta = {}", "initial_norm = {}", "order = {}",
                "label_noise = {}", "coefficients = {}", "seed = {}"),
    "grid": ("width = {}", "beta = {}", "dimension = {}", "initial_norm = {}"),
    "study": ("name = {}", "rtol = {}", "save_at = {}"),
    "output": ("path = {}",),
}  # fmt: skip
#: Lines that are TOML and still no study.
STUDY_WRONG = (
    "[colour]\na = 1", "colour = 1", "[problem]\ncolour = 1", "[grid]\ncolour = [1]", "[study]\ncolour = 1",
    "[output]\ncolour = 1", "problem = 3", "grid = []", "[[problem]]\nk = 4", "[[grid]]\nk = 4", "[problem.k]\na = 1",
    "[grid]\nseed = []", "[grid]\nseed = [0, 0]", "[grid]\nk = [4]", "[grid]\nseed = { range = [0] }", "[grid]\nseed = 3",
    "[grid]\nseed = { range = [3, 1] }", "[grid]\nwidth = { geometric = [1, 2] }", "[grid]\nwidth = { cubic = [1, 2, 3] }",
    "[grid]\nwidth = { geometric = [0, 9, 3] }", "[grid]\nwidth = { linear = [1, 9, 1e9] }", "[grid]\nwidth = { linear = [] }",
    "[grid]\nseed = { range = [0, 1000000000000] }", "[grid]\nwidth = { geometric = [1, 9, 1000000000000] }",
    "[grid]\nwidth = { range = [0, 3] }", "[grid]\nseed = { range = [0, 9, 0] }", '[study]\nname = "os:sep"',
    '[study]\nname = "no.module:f"', '[study]\nname = "overlap"', "[study]\nname = 3", '[study]\nname = ""',
    "[study]\nsave_at = { geometric = [1, 2] }", "[study]\nsave_at = { at = [2, 1] }", "[study]\nsave_at = { at = [] }",
    "[study]\nsave_at = { cubic = [1, 2, 3] }", "[study]\nsave_at = 3", "[study]\nsave_at = { linear = [0, 1, 1e12] }",
    "[study]\nsave_at = { linear = [0, 1, 1000000000000] }", "[output]\npath = 3", '[output]\npath = "missing/a.nc"',
    '[output]\npath = "."', '[output]\npath = "existing.nc"', '[output]\npath = "a\\u0000b.nc"', "[grid]\nteacher = [1]",
    '[problem]\nactivation = "he4"', "[problem]\ncoefficients = [1, 2]", '[problem]\nstudent = "x"', "[grid]\nactivation = [3]",
    '[problem]\nteacher = "x"', '[grid]\nactivation = ["__import__(\'os\')"]', '[problem]\ninitial_weights = [[1]]',
)  # fmt: skip


def configurations(rng: np.random.Generator, number: int) -> Iterator[bytes]:
    """Yield files of options of `python -m dynamics.solve` that must be refused."""
    numeric = [option.name for option in OPTIONS if option.read.__name__ not in ("plain", "save_schedule", "numbers")]
    for at in range(number):
        kind = at % 4
        if kind == 0:
            yield MALFORMED[at // 4 % len(MALFORMED)]
        elif kind == 1:
            name = str(rng.choice(numeric)).replace("-", "_")
            yield f"{name} = {NO_NUMBERS[int(rng.integers(len(NO_NUMBERS)))]}\n".encode()
        elif kind == 2:
            yield f"activation = {quoted(bad.formula(rng))}\n".encode()
        else:
            word = "".join(rng.choice(list("abcdefgh"), 9))
            yield f"{word} = {NO_NUMBERS[int(rng.integers(len(NO_NUMBERS)))]}\n".encode()


def studies(rng: np.random.Generator, number: int) -> Iterator[bytes]:
    """Yield study files that must be refused."""
    for at in range(number):
        kind = at % 3
        if kind == 0:
            yield MALFORMED[at // 3 % len(MALFORMED)]
        elif kind == 1:
            yield with_lines(STUDY_WRONG[at // 3 % len(STUDY_WRONG)])
        else:
            table = str(rng.choice(list(STUDY_LINES)))
            line = str(rng.choice(STUDY_LINES[table]))
            value = NO_NUMBERS[int(rng.integers(len(NO_NUMBERS)))]
            if value.startswith(("'''", '"')) and table == "output":
                continue  # almost any text names a file
            yield with_lines(f"[{table}]\n{line.format(value)}")


def with_lines(lines: str) -> bytes:
    """Return the good study with a table's lines in place of its own of the same key, or added."""
    head, _, body = lines.partition("\n")
    key = body.partition("=")[0].strip()
    table = head.strip("[]")
    kept, inside = [], False
    for line in SMALL_STUDY.splitlines():
        if line.startswith("["):
            inside = line == f"[{table}]"
        elif inside and line.partition("=")[0].strip() == key:
            continue
        kept.append(line)
        if line == head:
            kept.append(body)
    if head not in kept:
        kept = [head, body, *kept] if not head.startswith("[") else [*kept, head, body]
    return "\n".join(kept).encode()


def mutated(rng: np.random.Generator, content: bytes) -> bytes:
    """Return text cut short, with bytes changed, or with a piece of it twice; it may still be good."""
    changed = bytearray(content)
    kind = int(rng.integers(3))
    if kind == 0:
        del changed[int(rng.integers(len(content))) :]
    elif kind == 1:
        for place in rng.integers(len(content), size=int(rng.integers(1, 6))):
            changed[place] = int(rng.choice(list(b"[]{}=,.\"'#\n\x00 0k-e\xff")))
    else:
        begin = int(rng.integers(len(content) - 9))
        changed[begin:begin] = content[begin : begin + int(rng.integers(1, 60))]
    return bytes(changed)


def quoted(text: str) -> str:
    """Return text as a string of TOML."""
    escaped = "".join(f"\\u{ord(c):04x}" if ord(c) < 32 or c in '"\\' else c for c in text)
    return f'"{escaped}"'
