"""Every command with arguments that would pass, and texts that no option of a given kind may have."""

from typing import NamedTuple

import fuzz_values as bad

from dynamics import mean_field_study, study
from dynamics.commands import options
from dynamics.laws import __main__ as laws
from dynamics.report import __main__ as report
from dynamics.solve import __main__ as solve
from hermite.exponents import __main__ as exponents
from sgd_check import study as sgd_study
from sgd_check.run import __main__ as run

#: What each file that commands are given here is called.
PREDICTION, EXISTING, STUDY_FILE = "prediction.nc", "existing.nc", "study.toml"


class Command(NamedTuple):
    """A command, good arguments, and what each option may not be."""

    name: str
    main: object
    good: list[str]
    kinds: dict
    #: Arguments that contradict each other, or lack something.
    wholes: tuple[tuple[str, ...], ...] = ()


NO_NUMBERS = ("", " ", "four", "nan", "-nan", "inf", "-inf", "1e400", "-1", "-0.5", "1,2", "[1]", "1 2", "1e", "e5", "0x1p3",
              "None", "True", "1+1", "1/2", "9" * 5000 + "x", "--", "\N{INFINITY}", "1\0", "$(id)", "`id`", "; id", "../..",
              "1_", "{}", "1j")  # fmt: skip


def from_texts(*texts, often=()):
    """Return a kind of option that is given one of these texts, or any text."""

    def draw(rng):
        pool = (*texts, *often, *often)
        at = int(rng.integers(len(pool) + 3))
        return pool[at] if at < len(pool) else "?" + bad.text(rng)

    return draw


def named(*texts):
    """Return a kind of option that is given one of these texts alone, since almost any other would do."""
    return lambda rng: texts[int(rng.integers(len(texts)))]


def numbers_from(*more):
    """Return a kind of option that is given no number, or one of these."""
    return from_texts(*NO_NUMBERS, *more)


COUNT = numbers_from("0", "2.5", "1e-3", "1e30", "9" * 5000)
SEED = numbers_from("2.5", "1e-3", "1e30", "9" * 5000)
POSITIVE = numbers_from("0", "-1e-300", "0e5", "9" * 5000)
SHARE = numbers_from("0", "1", "1.5", "2")
#: Kinds by the function that reads the option.
READERS = {
    options.positive_integer: COUNT,
    options.integer: COUNT,
    options.real: POSITIVE,
    options.natural_number: SEED,
    options.positive: POSITIVE,
    options.non_negative: numbers_from("9" * 5000),
    options.fraction: SHARE,
    options.tolerance: numbers_from("0", "1", "1e-15", "2"),
    options.save_schedule: from_texts("cubic:3", "geometric", "geometric:", "geometric:1", "linear:0", "linear:-5", ":", "x:3",
                                      "linear:nan", "linear:2.5", "geometric:1e12", "linear:1e18", "linear:9e99", ""),
    options.integers: from_texts("", ",", "4,", "4,3,2,1", "1,1,1,1", "0,1,2,3", "a,b", "1.5,2,3,4", "nan", "-4", "1e30"),
    options.numbers: from_texts("", ",", "1,", "1,,2", "0,1", "-1", "-1,2", "a", "nan", "nan,1", "inf", "1;2", "a,b", "1,inf", "1," * 3000),
}  # fmt: skip
PATHS = named(
    "missing/run.nc", EXISTING, ".", "/", "/proc/run.nc", "x" * 300 + ".nc", "", "a\0b.nc", "/dev/null", "a\\b.nc",
    "bad\udcff.nc",
)  # fmt: skip
FIGURES = named(
    "figure", "figure.xyz", "missing/figure.png", "existing.png", "a\0b.png", ".", "/proc/figure.png", "bad\udcff.png"
)
LINKS = bad.formula
DEVICES = from_texts("tpu", "cuda:99", "cuda:-1", "cpu:0:1", "meta", "")


def commands():
    """Yield every command of the program."""
    yield _solve()
    yield _network()
    yield _mean_field()
    for catalogue, main in (
        (laws.CATALOGUE, laws.main),
        (mean_field_study.CATALOGUE, mean_field_study.main),
        (sgd_study.CATALOGUE, sgd_study.main),
    ):
        yield from _studies(catalogue, main)
    yield _study()
    yield _run()
    yield Command("dynamics.report", report.main, [PREDICTION, "--output", "new.html"],
                  {"output": named("missing/run.html", "existing.html", ".", "/proc/a.html", "a\0b.html")},
                  ((), ("missing.nc",), (PREDICTION, PREDICTION), ("--output", "new.html"), (".",), (STUDY_FILE,),
                   (PREDICTION, "--colour")))  # fmt: skip
    yield Command("hermite.exponents", exponents.main, ["he3"], {"degrees": numbers_from("0", "25", "2.5", "9" * 5000)},
                  ((), ("tahn",), ("z1*z4",), ("sin(40*z)",), ("exp(z^2)",), ("he3", "he4"), ("he3", "--colour"),
                   ("log(z1)",), ("z1/0",), ("0*z1",)))  # fmt: skip


def _kinds(table):
    kinds = {option.name: READERS[option.read] for option in table if option.read in READERS}
    menus = {option.name: from_texts("", "x", "AUTO", "auto,") for option in table if option.choices}
    return {**kinds, **menus, "output": PATHS, "plot": FIGURES}


def _solve():
    table = tuple(option for option in options.OPTIONS if "overlaps" in option.models)
    good = ["--directions", "2", "--width", "3", "--dimension", "16", "--t-max", "0.1", "--output", "new.nc"]
    contradictions = (
        ("--json", "--quiet"), ("--plot", "a.png", "--no-plot"), ("--coefficients", "1,2", "--beta", "1"),
        ("--coefficients", "1,2", "--ratio", "0.5"), ("--ratio", "0.5", "--beta", "1"), ("--k", "4", "--activation", "relu"),
        ("--model", "decoupled", "--method", "stiff"), ("--model", "decoupled", "--rtol", "1e-3"), ("--width",),
        ("--model", "decoupled", "--k", "2"), ("--t-min", "2", "--t-max", "1"), ("--step-theory", "finite-d"),
        ("--batch-size", "2"), ("--method", "gradient-descent"), ("--learning-rate", "1e-3", "--activation", "relu"),
        ("--dimension", "1", "--directions", "9"), ("--particles", "9"), ("--teacher-activation", "he3"), ("stray",),
        ("--width", "1e9"), ("--width", "1e6"), ("--directions", "1e12"), ("--directions", "1e10", "--dimension", "1e12"),
        ("--resume", "missing.nc"), ("--resume", PREDICTION), ("--resume", "."), ("--resume", "/dev/null"), ("--colour",),
        ("--resume", EXISTING), ("--wid", "3"), ("--config",), ("--config", "/dev/zero"), ("--config", "fifo"),
        ("--config", "."), ("--config", EXISTING), ("--config", "missing.toml"), ("--config", "/proc/self/mem"),
    )  # fmt: skip
    kinds = {**_kinds(table), "activation": LINKS, "device": DEVICES}
    return Command("dynamics.solve", solve.main, good, kinds, contradictions)


def _network():
    table = tuple(option for option in options.OPTIONS if "network" in option.models)
    good = ["--teacher", "x1*x2", "--activation", "erf", "--biases", "fixed", "--width", "2", "--dimension", "16",
            "--t-max", "0.1", "--output", "new.nc"]  # fmt: skip
    contradictions = (
        ("--model", "overlaps"), ("--coefficients", "1,2"), ("--beta", "1"), ("--directions", "2"), ("--device", "cpu"),
        ("--teacher-activation", "he3"), ("--method", "stiff"), ("--dimension", "1"), ("--biases", "none", "--initial-biases", "2"),
        ("--width", "3", "--initial-second-layer", "pairs"), ("--first-layer", "sphere", "--learning-rate", "1", "--step-theory", "finite-d"),
        ("--activation", "relu", "--learning-rate", "0.1"), ("--activation", "sign"), ("--particles", "3"),
    )  # fmt: skip
    layers = from_texts("", "x", "1", "1,2,3", "nan,1", "1,", "Signs")
    kinds = {
        **_kinds(table),
        "activation": LINKS,
        "teacher": from_texts("", "3", "x0", "x1/x2", "x1**13", "y", "__import__('os')", "h2(x1"),
        "initial-second-layer": layers,
        "initial-biases": from_texts("", "x", "-1", "1,2,3", "nan"),
        "scale": from_texts("", "1/d", "0", "-1", "nan", "1,2"),
        "rates": from_texts("", "fast", "1", "1,1", "1,-1,1", "nan,1,1"),
        "decay": from_texts("", "fast", "1", "1,-1", "nan,1"),
    }
    del kinds["model"], kinds["coefficients"]
    return Command("dynamics.solve, network", solve.main, good, kinds, contradictions)


def _mean_field():
    table = tuple(option for option in options.OPTIONS if "mean-field" in option.models)
    good = ["--model", "mean-field", "--dimension", "16", "--particles", "16", "--t-max", "0.1", "--output", "new.nc"]
    contradictions = (
        ("--width", "3"), ("--initial-norm", "0.1"), ("--beta", "1"), ("--device", "cpu"), ("--learning-rate", "0.1"),
        ("--directions", "9"), ("--dimension", "1"), ("--particles", "1e12"), ("--method", "stiff"),
        ("--directions", "2", "--quadrature", "graded"), ("--coefficients", "1,2", "--directions", "2"),
    )  # fmt: skip
    kinds = {**_kinds(table), "activation": LINKS, "teacher-activation": LINKS}
    del kinds["model"]
    return Command("dynamics.solve, mean field", solve.main, good, kinds, contradictions)


def _studies(catalogue, main):
    for name, one in catalogue.studies.items():
        table = one.options
        kinds = _kinds(table)
        if "teacher" in [option.name for option in table]:
            kinds["teacher"] = from_texts("", "x", "he3,", "__import__('os')")
        if "problem" in [option.name for option in table]:
            kinds["problem"] = from_texts("missing.nc", EXISTING, ".", "", "/dev/null", "a\0b")
        wholes = ((name, "--json", "--quiet"), (name, "--plot", "a.png", "--no-plot"), (name, "stray"), (name, "--colour"),
                  (name, "--seed"), (), ("",), (name + "x",))  # fmt: skip
        yield Command(f"{catalogue.prog} {name}", main, [name, "--output", "new.nc"], kinds, wholes)


def _study():
    kinds = {"workers": COUNT, "output": PATHS, "study": from_texts("", "os:sep", "predictions", "no.module:f", ":")}
    wholes = ((), ("missing.toml",), (".",), ("fifo",), ("/dev/zero",), ("/proc/self/mem",), (EXISTING,), (STUDY_FILE, "x"),
              (STUDY_FILE, "--json", "--quiet"), (STUDY_FILE, "--workers", "2", "--scheduler", "tcp://127.0.0.1:1"),
              (STUDY_FILE, "--colour"), (STUDY_FILE, "--workers"), ("a\0b",), ("x" * 300,))  # fmt: skip
    return Command("dynamics.study", study.main, [STUDY_FILE, "--output", "new.nc"], kinds, wholes)


def _run():
    kinds = {
        "seeds": COUNT,
        "learning-rate": POSITIVE,
        "steps": COUNT,
        "directions": COUNT,
        "batch-size": COUNT,
        "max-runtime": POSITIVE,
        "checkpoint-every": POSITIVE,
        "false-alarm-rate": SHARE,
        "widths": from_texts("", "4", "8,4", "4,4", "0,1", "a,b", "1.5,2", ","),
        "engine": from_texts("", "x", "PROJECTED", "torch,"),
        "theory": from_texts("", "x", "AUTO"),
        "device": DEVICES,
        "dtype": from_texts("", "float16", "int", "float32"),
        "resume": from_texts("missing.nc", PREDICTION, EXISTING, ".", "/dev/null", "a\0b"),
        "output": PATHS,
        "plot": FIGURES,
    }
    wholes = ((), ("missing.nc",), (".",), ("/dev/null",), ("/dev/zero",), ("fifo",), (EXISTING,), ("x" * 300,), ("a\0b",),
              (PREDICTION, PREDICTION), (PREDICTION, "--json", "--quiet"), (PREDICTION, "--plot", "a.png", "--no-plot"),
              (PREDICTION, "--widths", "2,4"), (PREDICTION, "--colour"), (PREDICTION, "--seeds"))  # fmt: skip
    good = [PREDICTION, "--output", "new.nc", "--steps", "4", "--seeds", "2", "--learning-rate", "1e-4"]
    return Command("sgd_check.run", run.main, good, kinds, wholes)
