"""Values that no argument of a given kind may have: fixed ones, and ones drawn from a seed."""

from decimal import Decimal

import numpy as np
import xarray as xr

#: What stands for a size that no machine has.
ENORMOUS = (10**9, 10**12, 10**18, 2**63, 2**64, 10**30, 10**5000)

NO_NUMBERS = (
    "1", "", "four", b"1", None, [], [1.0], (), {}, {1}, 1j, object(), len, Decimal(1), np.ones(2), np.ones((2, 2)),
    np.array([np.nan]), xr.Dataset(), True, np.bool_(1), np.datetime64("2020-01-01"), slice(1), Ellipsis,
)  # fmt: skip
NOT_FINITE = (
    10**400,
    -(10**5000),
    float("nan"),
    float("inf"),
    -float("inf"),
    np.nan,
    np.float32("nan"),
    np.float64("inf"),
)


def text(rng):
    size = int(rng.integers(1, 40))
    return "".join(map(chr, rng.choice([*range(1, 128), *range(0x3B1, 0x3C9), 0x202E, 0xFEFF, 0x1F600], size)))


def numbers_below(rng, lowest, *, open_end):
    """Return a number below `lowest`, or this if the end is open."""
    if open_end and rng.random() < 0.3:
        return lowest
    return float(lowest - 10.0 ** rng.uniform(-6, 12))


def _choice(rng, values):
    return values[int(rng.integers(len(values)))]


def positive(rng):
    return _mixed(rng, NO_NUMBERS, NOT_FINITE, lambda: numbers_below(rng, 0.0, open_end=True), lambda: text(rng))


def non_negative(rng):
    """Return what is no number of at least 0."""
    return _mixed(rng, NO_NUMBERS, NOT_FINITE, lambda: numbers_below(rng, 0.0, open_end=False), lambda: text(rng))


def share(rng):
    """Return what is no number between 0 and 1."""
    return _mixed(
        rng, NO_NUMBERS, NOT_FINITE, lambda: numbers_below(rng, 0.0, open_end=True),
        lambda: 1.0 + float(10.0 ** rng.uniform(-3, 9)),
    )  # fmt: skip


def count(rng):
    """Return what is no integer of at least 1."""
    return _mixed(
        rng, NO_NUMBERS, NOT_FINITE, lambda: -int(rng.integers(0, 10**12)), lambda: float(rng.uniform(0.1, 9.9)),
        lambda: np.float64(3.25),
    )  # fmt: skip


def whole(rng):
    """Return what is no whole number of at least 1, written as an integer or not."""
    return _mixed(
        rng, NO_NUMBERS, NOT_FINITE, lambda: -int(rng.integers(0, 10**12)), lambda: int(rng.integers(0, 99)) + 0.5
    )


def seed(rng):
    """Return what is no integer of at least 0."""
    return _mixed(rng, NO_NUMBERS, NOT_FINITE, lambda: -int(rng.integers(1, 10**12)), lambda: 0.5, lambda: text(rng))


def enormous(rng):
    return _choice(rng, ENORMOUS)


def switch(rng):
    return _mixed(rng, ("yes", "no", 2, -1, 1.5, [], {}, object(), np.ones(2)), (), lambda: text(rng))


def choice(rng):
    return _mixed(
        rng, ("", " ", "AUTO", 1, 1.5, [], {}, ("auto",), object(), b"auto", np.ones(2)), (), lambda: text(rng)
    )


def folder_path(rng):
    """Return what names no file that may be written."""
    return _mixed(
        rng,
        (
            "", ".", "..", "/", "missing/run.nc", "/proc/run.nc", "x" * 300 + ".nc", "a\0b.nc", "a\udcff.nc", 3, 1.5,
            [], {}, object(),
        ),
        (), lambda: f"missing-{int(rng.integers(10**6))}/run.nc",
    )  # fmt: skip


def source(rng):
    """Return what names no file of the program."""
    return _mixed(
        rng,
        ("", ".", "/", "missing.nc", "/proc/self/mem", "/dev/null", "/dev/zero", "x" * 300, "a\0b.nc", 3, 1.5, None,
         [], {}, object()),
        (),
        lambda: f"missing-{int(rng.integers(10**6))}.nc",
    )  # fmt: skip


def times(rng):
    return _mixed(
        rng,
        ("x", [], None, {}, [np.nan], [1.0, np.inf], [-1.0, 2.0], [2.0, 1.0], [1.0, 1.0], np.ones((2, 2)), ["a"],
         [1j], object(), [[1.0], [2.0, 3.0]]),
        (),
        lambda: [-float(x) for x in rng.uniform(1, 9, 3)],
        lambda: np.sort(rng.uniform(1, 9, 4))[::-1],
        lambda: np.where(np.arange(5) == rng.integers(5), np.nan, np.arange(5.0)),
    )  # fmt: skip


def array(rng):
    """Return an array of no shape that is asked for, or with entries that are none, or no array."""
    shape = tuple(int(n) for n in rng.integers(0, 12, int(rng.integers(3, 5))))
    return _mixed(
        rng,
        ("x", b"x", {}, object(), len, [[1.0], [1.0, 2.0]], ["a", "b"], [1j, 2j], [None], float("nan"), [np.nan]),
        (),
        lambda: rng.standard_normal(shape),
        lambda: np.full((int(rng.integers(1, 9)), int(rng.integers(1, 9))), _choice(rng, NOT_FINITE)),
    )


def no_schedule(rng):
    return _mixed(rng, ("geometric:3", 3, 1.5, [1.0, 2.0], (1.0, 2.0, 3), {}, object(), np.ones(3), len), ())


def no_problem(rng):
    return _mixed(rng, (None, "he4", 4, {}, {"width": 3}, [], object(), np.ones(3), xr.Dataset(), len), ())


def no_dataset(rng):
    return _mixed(
        rng,
        (None, "run.nc", 4, {}, [], object(), np.ones(3), xr.Dataset(), xr.DataTree(), xr.DataArray(np.ones(3)),
         xr.Dataset({"loss": ("time", np.ones(3))}), xr.Dataset(attrs={"answer": "overlaps"}),
         xr.Dataset({"loss": ("time", np.ones(3))}, coords={"time": np.arange(3.0)}),
         xr.Dataset(attrs={"parameters": "{"}), xr.Dataset(attrs={"answer": 3, "parameters": "[]"})),
        (),
    )  # fmt: skip


def no_axes(rng):
    return _mixed(rng, ("ax", 1, [], {}, object(), np.ones(3), [None], ["a", "b", "c"]), ())


def link(rng):
    return _mixed(
        rng,
        (None, 4, 1.5, [], {}, (), object(), b"he4", {-1: 1.0}, {4: np.nan}, {4: 0.0}, {"4": 1.0}, {4: "x"}, {301: 1.0},
         {10**9: 1.0}, {4.5: 1.0}, {True: 1.0}, lambda z: "x", lambda z: z[:1], lambda z: z * np.nan, lambda z: 1j * z,
         lambda z: np.ones((2, 2)), lambda: 1, lambda z: np.exp(z**2), np.ones((3, 3)), xr.Dataset()),
        (),
        lambda: formula(rng),
        lambda: formula(rng),
        lambda: {int(rng.integers(1, 9)): _choice(rng, NOT_FINITE)},
    )  # fmt: skip


BAD_LEAVES = (
    "__import__('os').system('true')", "open('x', 'w')", "(lambda: 0)()", "z.__class__", "[z for z in z]", "z[0]",
    "eval('z')", "exec('z')", "print(z)", "y", "w0", "z if z else 1", "z and z", "z := 3", "f'{z}'", "'z'", "b'z'",
    "None", "True", "...", "{z}", "(z, z)", "z @ z", "z // 2", "z % 2", "z << 3", "~z", "not z", "z < 3",
    "he301(z)", "h999999999(z)", "he-1(z)", "z^301", "z^(10^9)", "9^9^9^9", "1e999*z", "1/0", "z/0", "0/0",
    "(0*z)/0", "10^400*z", "tanh()", "tanh(z, z)", "tanh(z=1)", "tanh(*z)", "max(z)", "gamma(z)",
    "sqrt(-1)*z", "z + x", "log(0)*z",
    "os", "sys.exit(3)", "globals()", "breakpoint()", "quit()", "import os", "z;z", "z\nz", "z #", "\0", "#", "(" * 60,
    "(" * 400 + "z" + ")" * 400, "-" * 450 + "z", "z" * 600, "+".join(["z"] * 400), "\u0399", "z\u0337^2)", "\u2028",
    "factorial(99999)*z", "zeta(z)", "integrate(z)", "Symbol('z')", "S('z')",
    "nan*z", "inf*z", "oo", "zoo", "I*z", "1j*z",
)  # fmt: skip

#: What is bad by itself; in a bounded function, or beside z, some of it is not.
BAD_ALONE = ("pi", "e", "3", "4/5", "sin(3)", "he4(3)", "log(z)", "sqrt(z)", "z^0.5", "z^z", "(-1)^z", "1/z", "1/z^2",
             "exp(z^2)", "exp(z^4)", "exp(exp(z))", "exp(1000)*z", "tanh(1e80)*z")  # fmt: skip


def formula(rng):
    """Return text that is no formula of the allow-list: a bad piece, or a bad piece deep in a good formula."""
    bad = str(_choice(rng, (*BAD_LEAVES, *BAD_ALONE)))
    if bad in BAD_ALONE or rng.random() < 0.4:
        return bad
    wrapped = _choice(rng, ("tanh({})", "0.5*z + ({})", "({})*he3(z)", "sin(z)*({})", "-({})", "2*({}) - z"))
    return str(wrapped).format(bad)


def _mixed(rng, fixed, more, *draws):
    """Return a fixed value or a drawn one."""
    pool = (*fixed, *more)
    at = int(rng.integers(len(pool) + 3 * len(draws)))
    return pool[at] if at < len(pool) else draws[(at - len(pool)) // 3]()
