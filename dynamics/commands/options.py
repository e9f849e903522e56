"""The arguments of all commands, each declared once: how they are spelled, read, checked and explained.

Command lines, TOML files and study files read these tables. Readers turn text into a checked value, or raise ValueError
with the end of a sentence, "must …, but is …". This module imports nothing heavy, so that `--help` answers at once.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from pkgutil import get_data
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias, TypeVar, get_args

from dynamics.integrators import FLOW_METHODS
from hermite.text import messages
from hermite.text.messages import cut, refuse, shown, suggestion
from hermite.text.signs import number_text

#: Condition and the end of a sentence -> ValueError unless the condition holds.
require = messages.require
Number = TypeVar("Number", int, float)

# --- readers ------------------------------------------------------------------------------------------------

#: How saved times are spaced, and how many a command can save: to list ten million takes a second.
SPACINGS, MOST_TIMES = ("geometric", "linear"), 10**7
#: Values of --bands.
YES, ANY_SIZE = "yes", "any-size"


def plain(text: str) -> str:
    """Read text as it is."""
    return text


def switch(_: str) -> bool:
    """Read an option that takes no value: giving it turns it on."""
    return True


def real(text: str) -> float:
    """Read a finite number."""
    try:
        value = float(number_text(text))
    except ValueError:
        refuse(f"must be a number, but is {shown(text)}")
    require(math.isfinite(value), f"must be finite, but is {cut(text)}")
    return value


def _checked(
    read: Callable[[str], Number], holds: Callable[[Number], bool], requirement: str
) -> Callable[[str], Number]:
    """Return a reader of text: `read` reads the value, for which `holds` must be true, in words `requirement`."""

    def checked(text: str) -> Number:
        value = read(text)
        require(holds(value), f"must be {requirement}, but is {cut(text)}")
        return value

    return checked


#: Readers of numbers within bounds; a tolerance is one that float64 can honour.
positive = _checked(real, lambda value: value > 0, "positive")
non_negative = _checked(real, lambda value: value >= 0, "at least 0")
share = _checked(real, lambda value: 0 <= value < 1, "at least 0 and below 1")
fraction = _checked(real, lambda value: 0 < value < 1, "above 0 and below 1")
tolerance = _checked(real, lambda value: 1e-14 <= value < 1, "at least 1e-14 and below 1")


def rate_or_share(text: str) -> float | str:
    """Read a learning rate above 0, or a share of the limit of stability such as 0.1x, which stays text."""
    if text.endswith("x"):
        from dynamics.problem.checks import share_of_limit  # needs numpy, which help does not

        require(
            share_of_limit(text) is not None,
            f"must be a number or a share of the limit of stability such as 0.1x, but is {shown(text)}",
        )
        return text
    return positive(text)


def integer(text: str) -> int:
    """Read an integer; 1e6 is one too."""
    try:
        return int(text)
    except ValueError:
        value = real(text)
    require(value == int(value), f"must be an integer, but is {shown(text)}")
    return int(value)


positive_integer = _checked(integer, lambda value: value >= 1, "at least 1")
natural_number = _checked(integer, lambda value: value >= 0, "at least 0")


def neurons(text: str) -> int | str:
    """Read a number of neurons, or top:COUNT, as many as match the first COUNT directions, which stays text."""
    kind, colon, count = text.partition(":")
    if not colon:
        return positive_integer(text)
    require(kind == "top", f"must be a number or top:COUNT, but is {shown(text)}")
    positive_integer(count)
    return text


def band_choice(text: str) -> bool | str:
    """Read what bands are asked for: yes, or any-size, whatever they cost."""
    if text not in (YES, ANY_SIZE, ANY_SIZE.replace("-", " ")):
        refuse_word(f"must be {ANY_SIZE} or nothing, but is {shown(text)}", text, (ANY_SIZE,))
    return text == YES or text.replace("-", " ")


def sample_count(text: str) -> int | str:
    """Read a number of samples, or one in units of the dimension such as 4d, which stays text."""
    if not text.endswith("d"):
        return positive_integer(text)
    positive(text[:-1])
    return text


def integers(text: str) -> tuple[int, ...]:
    """Read integers separated by commas."""
    return tuple(integer(part) for part in text.split(","))


def indices(text: str) -> tuple[int | None, ...]:
    """Read integers separated by commas, each of which may be absent, as a minus says."""
    return tuple(None if part.strip() == "-" else integer(part) for part in text.split(","))


def calls(text: str) -> tuple[str, ...]:
    """Read words or calls separated by commas, but for those within brackets."""
    return tuple(part.strip() for part in re.split(r",(?![^(]*\))", text))


def numbers(text: str) -> tuple[float, ...]:
    """Read numbers separated by commas, or @FILE, one row or column of numbers."""
    if text.startswith("@"):
        return read_numbers(text)
    is_file = False
    with suppress(OSError, ValueError):  # a name that no file can have
        is_file = not text.replace(".", "").isdigit() and Path(text).is_file()
    require(not is_file, f"must be numbers, or @ before the name of a file, but is {shown(text)}")
    return tuple(real(part) for part in text.split(","))


def word_or_numbers(*words: str) -> Callable[[str], str | float | tuple[float, ...]]:
    """Return a reader of one of some words, of a number, or of numbers separated by commas."""

    def read(text: str) -> str | float | tuple[float, ...]:
        if text in words:
            return text
        try:
            values = numbers(text)
        except ValueError:
            if words and "," not in text and not text.startswith("@"):
                refuse_word(f"must be {', '.join(words)} or numbers, but is {shown(text)}", text, words)
            raise
        return values[0] if len(values) == 1 and not text.startswith("@") else values

    return read


def save_schedule(text: str) -> tuple[str, int]:
    """Read `geometric:200`, `linear:50`, or a bare count, which means geometric."""
    kind, _, count = text.rpartition(":")
    kind = kind or ("geometric" if count[:1].isdigit() else count)
    if kind not in SPACINGS:
        refuse_word(f"must be geometric:COUNT or linear:COUNT, but is {shown(text)}", kind, SPACINGS)
    number = integer(count)
    require(number >= 2, f"must ask for at least 2 times, but asks for {number}")
    require(number <= MOST_TIMES, f"must ask for at most {MOST_TIMES} times, but asks for {shown(number)}")
    return kind, number


def refuse_word(sentence: str, word: str, words: Iterable[str]) -> NoReturn:
    """Raise ValueError with a sentence about a word, and with the nearest of `words` if it seems misspelt."""
    hint = suggestion(word, words)
    raise ValueError(f"{sentence}.{hint}" if hint else sentence)


# --- files of numbers -----------------------------------------------------------------------------------------
# Text with one row or one column, or an array of numpy. What could be read in two ways, or would lose something, is
# refused.

#: Bytes of a file of numbers; coefficients of a million directions have a fifth.
MOST_BYTES = 10**8
#: The first bytes of an array of numpy, and of text in two bytes a letter.
NUMPY, WIDE = b"\x93NUMPY", (b"\xff\xfe", b"\xfe\xff")
#: The sign that begins a comment, and lines that are one.
COMMENT, COMMENT_LINES = "#", ("%", "//")
QUOTES = "\"'"


def read_numbers(name: str) -> tuple[float, ...]:
    """Return the numbers of a file; its name follows an @.

    Text has one row or one column, separated by semicolons, tabs, commas or spaces, or a list that goes on from line to
    line; a line of names may stand above it, and comments from # on anywhere. Below two names the first column may
    number the rows, 1, 2, …. Decimals have a point or, where no comma
    separates, a comma.
    """
    content = _read(name)
    values = _of_numpy(content, name) if content.startswith(NUMPY) else _of_text(_decoded(content, name), name)
    require(values, f"must name a file with numbers, but {shown(name)} holds none")
    return tuple(values)


def read_pairs(name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the two columns of a file, as text with or without names above them, or as an array of numpy (n, 2)."""
    content = _read(name)
    if content.startswith(NUMPY):
        values = _array_of(content, name)
        require(values.ndim == 2 and values.shape[1] == 2, f"must name an array with two columns, but is {shown(name)}")
        return tuple(values[:, 0].tolist()), tuple(values[:, 1].tolist())
    rows, _ = _rows_of(_decoded(content, name))
    if rows and not any(map(_is_number, rows[0][1])):
        rows = rows[1:]
    for number, fields in rows:
        require(
            len(fields) == 2 and all(map(_is_number, fields)),
            f"must name a file with two numbers a line, but line {number} of {shown(name)} has other fields",
        )
    return tuple(_number(fields[0]) for _, fields in rows), tuple(_number(fields[1]) for _, fields in rows)


def _read(name: str) -> bytes:
    """Return the bytes of the file that "@FILE" names; raise ValueError if it cannot be read or is too large."""
    try:
        with Path(name[1:]).expanduser().open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except (OSError, RuntimeError, ValueError) as error:  # no home, or a name that no file can have
        reason = getattr(error, "strerror", None) or "it is no name of a file"
        refuse(f"must name a file of numbers that can be read, but is {shown(name)}: {reason}")
    require(len(content) <= MOST_BYTES, f"must name a file of at most {MOST_BYTES} bytes, but is {shown(name)}")
    return content


def _array_of(content: bytes, name: str) -> Any:
    """Return the array of real numbers in the bytes of an .npy file; `name` is that of the file, for the message."""
    from numpy.lib.format import read_array

    from hermite.arrays import real_array

    try:
        return real_array(read_array(BytesIO(content)), "x")  # objects would be unpickled, and are refused
    except (EOFError, MemoryError, OSError, TypeError, ValueError):
        refuse(f"must name an array of real numbers, but {shown(name)} is another file of numpy")


def _of_numpy(content: bytes, name: str) -> list[float]:
    """Return the numbers in the bytes of an .npy file whose array has one row or one column."""
    import numpy as np

    values = _array_of(content, name)
    require(
        values.size == max((1, *values.shape)),
        f"must name an array with one row or column, but that of {shown(name)} has shape {values.shape}",
    )
    require(np.isfinite(values).all(), f"must name an array of finite numbers, but {shown(name)} has others")
    return [float(value) for value in values.ravel()]


def _decoded(content: bytes, name: str) -> str:
    """Return the bytes of a file as text, of UTF-16 or UTF-8; raise ValueError if they are neither."""
    try:
        text = content.decode("utf-16" if content.startswith(WIDE) else "utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    require(
        "\0" not in text,
        f"must name a file of numbers as text, or an array of numpy (.npy), but {shown(name)} is no text",
    )
    return text


def _rows_of(text: str) -> tuple[list[tuple[int, list[str]]], str | None]:
    """Return number and fields of each line of a text without comments, and the separator, None for blanks."""
    lines = [
        (number, content)
        for number, line in enumerate(text.splitlines(), start=1)
        if (content := line.partition(COMMENT)[0].strip(" \r\n")) and not content.startswith(COMMENT_LINES)
    ]
    separator = next((mark for mark in ";\t," if any(mark in line for _, line in lines)), None)
    return [(number, _fields(line, separator)) for number, line in lines], separator


def _of_text(text: str, name: str) -> list[float]:
    """Return the numbers in a text, without names of columns in its first line and numbers of rows before them."""
    rows, separator = _rows_of(text)
    if len(rows) > 1 and not any(map(_is_number, rows[0][1])):
        is_numbered = len(rows[0][1]) == 2 and _counts_rows(rows[1:])
        rows = [(number, fields[is_numbered:]) for number, fields in rows[1:]]  # without names of columns
    for number, fields in rows:
        for field in fields:
            if _is_number(field):
                continue
            require(field, f"must name a file without missing numbers, but line {number} of {shown(name)} lacks one")
            require(
                separator != "," or len(field.split()) == 1,
                f"must name a file with commas or spaces between numbers, but {shown(name)} has both",
            )
            refuse(f"must name a file of numbers alone, but line {number} of {shown(name)} has {shown(field)}")
    widths = {len(fields) for _, fields in rows}
    if len(rows) > 1 and widths != {1}:
        # A list that goes on from line to line has a last line that is shorter.
        is_list = all(len(first) == len(second) for (_, first), (_, second) in pairwise(rows[:-1]))
        is_list = is_list and len(rows[-1][1]) < len(rows[0][1])
        length = "unlike length" if len(widths) > 1 else f"{min(widths)} numbers"
        require(
            is_list or not (widths == {2} and separator == "," and "." not in text),
            f"must name a file with one row or one column, but {shown(name)} has {len(rows)} rows of {length}, or "
            "decimals with a comma",
        )
        require(
            is_list,
            f"must name a file with one row or one column, but {shown(name)} has {len(rows)} rows of {length}",
        )
    return [_number(field) for _, fields in rows for field in fields]


def _counts_rows(rows: list[tuple[int, list[str]]]) -> bool:
    """Return whether rows have two fields, of which the first is the number of the row, from 1."""
    return all(len(fields) == 2 and _number(fields[0]) == row for row, (_, fields) in enumerate(rows, start=1))


def _fields(line: str, separator: str | None) -> list[str]:
    """Return the fields of a line without spaces and quotes; a separator at the end begins no field."""
    fields = [_unquoted(field.strip()) for field in line.split(separator)]
    return fields[:-1] if len(fields) > 1 and not fields[-1] and separator != "\t" else fields


def _unquoted(field: str) -> str:
    """Return a field without quotes around it; a field that a separator has cut, as in "1,234", keeps its quote."""
    is_quoted = len(field) > 1 and field[0] in QUOTES and field[0] == field[-1]
    return field[1:-1].strip() if is_quoted else field


def _number(field: str) -> float:
    """Return the number in a field, with a decimal comma or point; NaN for any other text."""
    field = number_text(field)
    try:
        return float(field.replace(",", ".") if field.count(",") == 1 and "." not in field else field)
    except ValueError:
        return math.nan


def _is_number(field: str) -> bool:
    """Return whether a field is a finite number."""
    return math.isfinite(_number(field))


# --- options ------------------------------------------------------------------------------------------------

MODELS = ("overlaps", "decoupled", "quadratic", "mean-field", "network", "correlation", "reused-data")
#: Models of the homogeneous student, and of finite width.
HOMOGENEOUS, WITH_WIDTH = ("overlaps", "decoupled"), ("overlaps", "decoupled", "quadratic", "network", "reused-data")
OVERLAPS, MEAN_FIELD = ("overlaps",), ("mean-field",)
NETWORK, CORRELATION, REUSED = ("network",), ("correlation",), ("reused-data",)
#: Models in which directions emerge.
EMERGING = (*HOMOGENEOUS, "quadratic", *NETWORK, *CORRELATION)
#: Models whose student has its own layers.
NETWORKS = (*NETWORK, *REUSED)
STEP_THEORIES = ("finite-d", "infinite-d")
#: Headings of the help, in their order there: what most users ask comes first.
Group = Literal["problem", "answer", "output", "running", "two-layer networks", "problem details", "answer details"]
GROUPS: tuple[Group, ...] = get_args(Group)


#: Values of options by name, each of the type that its option reads.
Values: TypeAlias = Mapping[str, Any]


class Option(NamedTuple):
    """One argument: how it is spelled, read, checked and explained."""

    #: The flag, without its dashes.
    name: str
    #: Text -> value.
    read: Callable[[str], object]
    #: One line, which ends in brackets where the default cannot be told as text.
    help: str
    #: Placeholder of the value in the help; by default the name in capitals.
    metavar: str | None = None
    #: Text of the default.
    default: str | None = None
    #: All good texts, if not every text that can be read is one.
    choices: tuple[str, ...] = ()
    #: Models of `python -m dynamics.solve` that take it; of options of a solver by the signatures of its functions.
    models: tuple[str, ...] = MODELS
    #: Its name in functions, where this is not the flag with underscores.
    argument: str = ""
    #: Text that the flag alone stands for; None: it must have a value.
    bare: str | None = None
    #: Heading of the help below which every command lists it.
    group: Group = "problem"

    @property
    def key(self) -> str:
        """Name of the argument in functions, TOML files and parsed values."""
        return self.argument or self.name.replace("-", "_")

    @property
    def explanation(self) -> str:
        """The line of help, with default and choices."""
        default = "" if self.default is None or self.help.endswith("]") else f" [{self.default}]"
        return f"{self.help}{default}{'; one of ' if self.choices else ''}{', '.join(self.choices)}".strip()


class Argument(NamedTuple):
    """Type, as it is written, and default of an argument of a function; the default is None where it is not plain."""

    type: str
    default: Any

    @property
    def read(self) -> Callable[[str], object]:
        """The reader of its text."""
        return READERS.get(self.type.removesuffix(" | None"), plain)

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that a literal type lists."""
        return tuple(re.findall("'([^']+)'", self.type)) if self.type.startswith("Literal[") else ()


#: Type of an argument, without None -> reader of its text, which is `plain` for all others.
READERS: dict[str, Callable[[str], object]] = {
    "bool": switch,
    "int": integer,
    "int | str": neurons,
    "float": real,
    "Sequence[int]": integers,
    "Sequence[int | None]": indices,
    **dict.fromkeys(("Sequence[float]", "ArrayLike"), numbers),
    **dict.fromkeys(("Sequence[str]", "str | Sequence[str]", "Sequence[Optimizer | str]"), calls),
}


@cache
def _signatures(package: str) -> dict[str, dict[str, list[Any]]]:
    """Return the arguments of the functions of a package that commands call, which `tests/signatures.py` writes."""
    stored: dict[str, dict[str, list[Any]]] = json.loads(get_data(package, "signatures.json") or b"")
    return stored


def arguments_of(function: str) -> dict[str, Argument]:
    """Return the arguments of a function "module:function", or of that of an answer by its name, without loading it.

    None are known of a function that came after `tests/signatures.py` was run.
    """
    package = function.partition(".")[0] if ":" in function else "dynamics"
    return {name: Argument(*argument) for name, argument in _signatures(package).get(function, {}).items()}


def with_default(option: Option, argument: Argument) -> Option:
    """Return an option with the choices and the default of an argument, except where it has its own."""
    default, value = option.default, argument.default
    if default is None and value not in (None, []) and value is not False and not option.help.endswith("]"):
        default = _typed(value)
    return option._replace(default=default, choices=option.choices or argument.choices)


def _typed(value: object) -> str:
    """Return a plain value as it is typed."""
    if isinstance(value, list):
        return ",".join(map(_typed, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


# --- a problem and its answer: `python -m dynamics.solve` ---------------------------------------------------

SPECTRUM = Option(
    "spectrum", non_negative, "decay of the eigenvalues of the inputs' covariance, s_l = l^-alpha [isotropic inputs]",
    "ALPHA", models=(*OVERLAPS, *NETWORK), group="problem details")  # fmt: skip
SPECTRUM_FROM = Option(
    "spectrum-from", plain,
    "rows of data, a file .npy, .npz or .csv, whose covariance the Gaussian inputs have; gives the dimension",
    "FILE", models=(*OVERLAPS, *NETWORK), group="problem details")  # fmt: skip
PROBLEM_OPTIONS = (
    Option("k", positive_integer, "information exponent; the link is then h_k, h_2 for quadratic [4]", "K"),
    Option("activation", plain, "link instead of h_k: a name (he3, relu, erf, tanh, ...), an expression in z, or @ and "
           "a file of z and sigma(z) in two columns [h_k; reused-data: erf]", "LINK|@FILE"),
    Option("teacher-activation", plain, "link of the teacher, if it is not the student's", "LINK",
           models=(*MEAN_FIELD, *NETWORKS, *CORRELATION), group="problem details"),
    Option("order", natural_number, "order of the Hermite truncation of links that are not polynomials", "N",
           group="problem details"),
    Option("beta", non_negative, "decay of the teacher's coefficients, a_p ~ p^-beta, sum a_p^2 = 1 [1.0]",
           models=WITH_WIDTH),
    Option("ratio", fraction, "ratio of neighbouring coefficients, a_p ~ ratio^p, instead of a power law", "R",
           models=WITH_WIDTH, group="problem details"),
    Option("directions", positive_integer,
           "number of teacher directions P [16; network: 2; quadratic: 256; mean-field, correlation, reused-data: 1]",
           "P"),
    Option("coefficients", numbers,
           "the coefficients themselves, separated by commas or in a file, instead of a power law", "A,A,...|@FILE"),
    Option("teacher", plain, "polynomial of x1 ... x9 as the teacher, such as 'x1 + x1*x2'", "TEXT", models=NETWORKS),
    Option("width", neurons,
           "number of neurons m; every direction is covered from about P ln P on; quadratic: 32, reused-data: 1; "
           "top:16: as many as match all of the first 16 directions at a chance of .95 "
           "[3 P; network: 8]", "M",
           models=WITH_WIDTH),
    Option("dimension", positive_integer, "input dimension d, quadratic: 1e6 [max(256, P); mean-field: 64]", "D"),
    Option("initial-norm", positive, "norm of the starting weights, sigma_0, quadratic: m^(-1/4) [0.01; network: 1]",
           "S0", models=WITH_WIDTH, group="problem details"),
    Option("seed", natural_number, "seed of the random start", default="0"),
    Option("student", plain,
           "committee: f is the sum of all sigma(w_i.x); stiefel, of the quadratic model: neurons stay orthogonal and "
           "of one length",
           default="homogeneous", choices=("homogeneous", "stiefel", "committee"),
           models=("overlaps", "quadratic", "network"), group="problem details"),
    Option("emergence-level", fraction,
           "squared overlap at which a direction emerges [1/2; 0.6/k if the teacher has a product of k axes]", "C2",
           models=EMERGING, group="problem details"),
    Option("label-noise", non_negative, "standard deviation of the noise on the labels [0]", "TAU",
           models=(*WITH_WIDTH, *CORRELATION), group="problem details"),
    SPECTRUM,
    SPECTRUM_FROM,
    Option("objective", plain,
           "what is descended; others than squared choose the model: correlation one spherical neuron and one "
           "direction, the rest a network, which knows correlation too [squared]",
           choices=("squared", "correlation", "logistic", "hinge", "huber", "exponential", "softmax"),
           group="problem details"),
    Option("smoothing", non_negative,
           "lambda: the correlation is averaged over neurons w + lambda z, z on the unit sphere [0]", "LAMBDA",
           models=CORRELATION, group="problem details"),
)  # fmt: skip

#: Options of two-layer networks alone; any of them chooses the model.
NETWORK_OPTIONS = tuple(
    option._replace(models=NETWORKS, group="two-layer networks")
    for option in (
        Option("second-layer", plain, "whether the v_i move [trained]", choices=("trained", "fixed")),
        Option("initial-second-layer", word_or_numbers("signs", "pairs"),
               "start of the v_i: signs, pairs (f = 0), or numbers [signs]", "V,V,..."),
        Option("biases", plain, "whether neurons have biases that move [none]", choices=("none", "fixed", "trained")),
        Option("initial-biases", word_or_numbers(), "standard deviation of the biases, or numbers [1]", "B,B,..."),
        Option("first-layer", plain, "free, or neurons that keep their length [free]", choices=("free", "sphere")),
        Option("scale", word_or_numbers("1/m", "1/sqrt(m)"), "output scale: 1/m, 1/sqrt(m) or a number [1]", "S"),
        Option("rates", word_or_numbers("mean-field"), "rates of w, v and b, or mean-field [1,1,1]", "W,V,B"),
        Option("decay", word_or_numbers(), "weight decay of w and v [0,0]", "W,V"),
        Option("layer-wise", positive, "flow time until which w and b alone move, and then v alone [none]", "T"),
    )
)  # fmt: skip
#: Options of labels that are classes and of mixtures, of two-layer networks alone.
CLASS_OPTIONS = tuple(
    option._replace(models=NETWORK, group="two-layer networks")
    for option in (
        Option("labels", plain, "labels: f*, its sign, a class drawn by its sigmoid or softmax, or that of a cluster "
               "[value; of a mixture: cluster]", choices=("value", "sign", "bernoulli", "softmax", "cluster")),
        Option("flip", non_negative, "probability that a class is replaced by another one [0]", "P"),
        Option("threshold", real, "value of f* at which labels sign and bernoulli are even [0]", "F"),
        Option("mixture", plain, "clusters as inputs: two at +-e_1, or xor at +-e_1 and +-e_2 [none]",
               choices=("two", "xor")),
        Option("snr", positive, "one over the variance of a cluster [1]", "S"),
        Option("points", positive_integer, "points of means without closed forms, a power of two [16384]", "N"),
    )
)  # fmt: skip

#: Option -> argument of the functions of its models, where none has its name.
_BESIDE = {"epochs": "batches_per_epoch", "momentum": "optimizer", "average": "optimizer", "t-min": "t_max",
           "save": "t_max", "checkpoint-every": "max_runtime"}  # fmt: skip


def _of_answers(option: Option) -> Option:
    """Return an option with the models whose functions take it, and with the choices and default of its argument."""
    name = _BESIDE.get(option.name, option.key)
    takers = {model: arguments[name] for model in MODELS if name in (arguments := arguments_of(model))}
    if option.models != MODELS or not takers:
        return option
    option = option._replace(models=tuple(takers))
    return option if option.name in _BESIDE else with_default(option, next(iter(takers.values())))


_SOLVER_ROWS = (
    Option("model", plain,
           "equations to solve; options of networks choose network, --samples reused-data, --objective or --smoothing "
           "correlation",
           default="overlaps", choices=MODELS, group="answer"),
    Option("method", plain, "integrator; scipy's are referees", default="auto", choices=FLOW_METHODS,
           group="answer details"),
    Option("rtol", tolerance, "wanted relative accuracy", group="answer details"),
    Option("atol", positive, "wanted absolute accuracy, in units of 1/sqrt(d) for overlaps",
           group="answer details"),
    Option("error-estimate", plain,
           "estimate the numerical errors by a second, looser run; auto: for all methods but the referees",
           default="auto", choices=("auto", "yes", "no"), group="answer details"),
    Option("device", plain, "cpu, cuda or cuda:NUMBER: torch carries the stiff method there", "NAME", group="running"),
    Option("learning-rate", rate_or_share,
           "step of SGD, whose mean effect is then integrated, or of the method gradient-descent; 0.1x is a tenth of "
           "the limit of stability; time is this times the step [none: the flow; reused-data: 1]", "ETA",
           group="answer"),
    Option("samples", sample_count, "samples that every epoch uses again, a number or 4d for 4 per dimension", "N",
           group="answer"),
    Option("epochs", positive_integer, "passes over the samples [16]", "E", group="answer"),
    Option("batches", positive_integer, "batches of an epoch, a step for each [1]", "B", argument="batches_per_epoch",
           group="answer"),
    Option("reshuffle", switch, "part the samples into batches anew in every epoch", group="answer details"),
    Option("draws", positive_integer, "points that stand for the samples; errors fall as they grow [524288]", "N",
           group="answer details"),
    Option("step-theory", plain,
           "equation for --learning-rate: every term of the mean step, or those left as d grows [finite-d]",
           group="answer details"),
    Option("batch-size", positive_integer, "samples per step of SGD, for --learning-rate", "B", group="answer details"),
    Option("bands", band_choice, "scatter of single runs around the mean path of SGD, for --learning-rate: standard "
           "deviations, and bands of 95 percent in the figure; any-size beyond 64 numbers too [none]", ANY_SIZE,
           bare=YES, group="answer"),
    Option("optimizer", plain,
           "what a step of SGD does with the gradient: sgd, zeroth-order, adam, rmsprop, sign, or a call such as "
           "'ZerothOrder(directions=4)' [sgd]", "NAME", group="answer details"),
    Option("momentum", share, "momentum of SGD, as torch has it [0]", "BETA", group="answer details"),
    Option("average", word_or_numbers("polyak"),
           "average of the weights, whose loss is told too: polyak, or the share of each step's weights [none]",
           "ALPHA", group="answer details"),
    Option("particles", positive_integer, "number of particles [4096]", "N", group="answer details"),
    Option("quadrature", plain, "how particles stand for the isotropic law; auto: graded for one axis, else random",
           default="auto", choices=("auto", "graded", "quantiles", "random"), group="answer details"),
    Option("t-max", positive,
           "last time [2.5 times the last predicted learned time; mean-field, network: 20 times that of one neuron "
           "alone; quadratic: 2.5 times the last predicted alignment]", "T", group="answer"),
    Option("t-min", positive, "first saved time [a tenth of the first predicted emergence]", "T",
           group="answer details"),
    Option("save", save_schedule, "saved times: geometric:COUNT or linear:COUNT", "SCHEDULE", "geometric:150",
           group="answer"),
    Option("keep", plain, "what to keep at each time", group="answer details"),
    Option("max-runtime", positive, "wall-clock budget in seconds", "SECONDS", group="running"),
    Option("checkpoint-every", positive, "seconds between two versions of the file that a run can be resumed from",
           "SECONDS", "30.0", group="running"),
)  # fmt: skip
SOLVER_OPTIONS = tuple(map(_of_answers, _SOLVER_ROWS))

OPTIONS = (*PROBLEM_OPTIONS, *NETWORK_OPTIONS, *CLASS_OPTIONS, *SOLVER_OPTIONS)

# --- files and output of a command -------------------------------------------------------------------------

CONFIG = Option(
    "config", plain, "TOML file of options of this command; flags win over the file", "FILE", group="running"
)
PLOT = Option("plot", plain, "figure to write [beside the dataset, ending in .png]", "FILE", bare="", group="output")
NO_PLOT = Option("no-plot", switch, "write no figure", group="output")
STYLE = Option("style", plain, "look of the figure", "NAME", "screen", ("screen", "paper", "talk"), group="output")
CSV = Option(
    "csv",
    plain,
    "also write a table of the result: a row per direction, or whatever it is about",
    "FILE",
    group="output",
)
PAGE = Option("page", plain, "also write an HTML page on the result", "FILE", group="output")
OVERWRITE = Option("overwrite", switch, "replace existing files", group="output")
JSON = Option("json", switch, "print the result as one JSON object", group="output")
QUIET = Option("quiet", switch, "print nothing but errors", group="output")
NO_PROGRESS = Option("no-progress", switch, "show no progress bar", group="output")
#: Options of commands that write figures and tables.
FIGURES = (PLOT, NO_PLOT, STYLE, CSV)
#: Options of commands that print results and show progress.
SHOWN = (JSON, QUIET, NO_PROGRESS)
