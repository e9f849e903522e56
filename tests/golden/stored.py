"""Answers as plain values that JSON keeps, and what differs between two of them."""

import json
import re
import warnings
from collections.abc import Mapping

import numpy as np
import xarray as xr

#: What says when, where, by which version and how fast: of these the type alone is stored.
CHANGING = set(
    (
        "history date_created source git_commit environment numba_version torch_version random_numbers "
        "threads solve_seconds tracker_seconds compile_seconds pair_seconds wall_seconds steps_per_second"
    ).split()
)
#: Numbers of steps, evaluations and iterations, which rounding may change: of these, too, the types are compared.
COUNTS = re.compile(
    r"_(evaluations|iterations|failures|products|solves)$"
    r"|^(factorisations|divisions|diffusion_steps|steps_(accepted|rejected|limited_by_stability))$"
)
#: Numbers that are compared with a size of order one, from which they fall to rounding.
OF_ORDER_ONE = re.compile("gram_margin$|loss$|speed$")
#: Multiple of a stated error by which an answer may differ from the stored one. Both have such an error, and what is
#: stated is of one tolerance, so that two right answers differ by up to twice that, with a margin of two.
FACTOR = 4.0
#: An estimate of an error is right to about its own size: between two answers it may double or halve.
SHARE_OF_ESTIMATE = 0.5
#: Significant digits that are stored, beyond every bound.
DIGITS = 12
_NUMBER = re.compile(r"(?<![\w.])[-+−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?!\w)")


def answer(ask):
    """Ask, and return the described answer with the warnings that were given on the way."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        found = ask()
    said = [f"{each.category.__name__}: {each.message}" for each in heard]
    return _described(found) | {"warnings": list(dict.fromkeys(said))}


def _described(found):
    if isinstance(found, xr.DataTree):
        return {key: value for node in found.subtree for key, value in _of_group(node.path, node.to_dataset()).items()}
    if isinstance(found, xr.Dataset):
        return _of_group("/", found)
    return {str(key): _plain(value) for key, value in found.items()}


def _of_group(path, dataset):
    where = path.rstrip("/") + "/"
    described = {
        f"{where} attributes": _plain(dataset.attrs),
        f"{where} coordinates": sorted(map(str, dataset.coords)),
    }
    for name in sorted(map(str, dataset.variables)):
        variable = dataset[name].variable
        described[f"{where}{name}"] = {
            "dims": list(variable.dims),
            "dtype": variable.dtype.kind if variable.dtype.kind in "UO" else variable.dtype.str,
            "attributes": _plain(variable.attrs),
            "values": None if name in CHANGING else _plain(variable.values),
        }
    return described


def _plain(value):
    """Return a value as JSON keeps it: numbers, strings, lists and dicts; floats to the digits that are stored."""
    if isinstance(value, Mapping):
        return {str(key): type(each).__name__ if key in CHANGING else _plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if value is None or isinstance(value, bool | int | str):
        return value
    msg = f"An answer must be made of numbers and strings, but holds {type(value).__name__}."
    raise TypeError(msg)


def write(path, described):
    """Write an answer, one line per entry, so that a change of it can be read."""
    lines = (f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in described.items())
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def read(path):
    """Return a stored answer."""
    return json.loads(path.read_text(encoding="utf-8"))


def differences(found, stored, bound):
    """Return one sentence per value that differs from the stored one by more than its tolerance."""
    if found.keys() != stored.keys():
        return [f"entries: {sorted(found.keys() ^ stored.keys())}"]
    told = []
    for key, value in stored.items():
        where = key.rpartition("/")[0]
        rtol = stored.get(f"{where}/ attributes", {}).get("rtol", 0.0)
        largest = max(bound, rtol)
        if isinstance(value, dict) and "values" in value:
            told += _of_variable(key, found[key], value, largest, stored)
        else:
            told += _of_values(key, found[key], value, largest)
    return told


def _of_variable(key, found, stored, bound, every):
    for part in ("dims", "dtype"):
        if found[part] != stored[part]:
            yield f"{key}: {part} {found[part]} instead of {stored[part]}"
    yield from _of_values(f"{key} attributes", found["attributes"], stored["attributes"], bound)
    now, then = found["values"], stored["values"]
    if stored["dtype"][1:2] != "f" or then is None:
        if now != then:
            yield f"{key}: {now} instead of {then}"
        return
    a, b = (np.asarray(values, dtype=float) for values in (now, then))
    if a.shape != b.shape:
        yield f"{key}: shape {a.shape} instead of {b.shape}"
        return
    yield from _of_numbers(key, a, b, _allowed(key, a, b, bound, every))


def _allowed(key, a, b, bound, every):
    """Return by how much each number of a variable may differ."""
    of_what = every.get(key.removesuffix("_error")) if key.endswith("_error") else None
    if of_what is not None:
        larger = np.fmax(np.abs(a), np.abs(b))
        return SHARE_OF_ESTIMATE * larger + bound * _largest(np.asarray(of_what["values"], dtype=float))
    size = np.abs(b) if key.endswith("_time") else np.full(b.shape, max(_largest(b), _least_size(key)))
    allowed = FACTOR * bound * size
    for kind in ("_error", "_truncation_error"):
        estimate = every.get(key + kind)
        if estimate is not None:
            error = np.asarray(estimate["values"], dtype=float)
            allowed = allowed + FACTOR * np.where(np.isfinite(error), error, 0.0)
    return allowed


def _of_numbers(key, a, b, allowed):
    finite = np.isfinite(b)
    if not np.array_equal(np.isfinite(a), finite) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        yield f"{key}: other numbers are not finite: {a.tolist()} instead of {b.tolist()}"
        return
    excess = np.abs(a[finite] - b[finite]) - allowed[finite]
    if excess.size and excess.max() > 0.0:
        at = np.argmax(excess)
        yield f"{key}: {a[finite][at]} instead of {b[finite][at]}, which may differ by {allowed[finite][at]:.2g}"


def _least_size(key):
    return 1.0 if OF_ORDER_ONE.search(key) else 0.0


def _largest(values):
    return float(np.max(np.abs(values), where=np.isfinite(values), initial=0.0))


def _of_values(key, found, stored, bound):
    """Compare numbers, sentences and what holds them."""
    name = key.rpartition(" ")[2].rpartition(".")[2]
    if COUNTS.search(name):
        if type(found) is not type(stored):
            yield f"{key}: {type(found).__name__} instead of {type(stored).__name__}"
    elif isinstance(stored, dict) and isinstance(found, dict):
        if found.keys() != stored.keys():
            yield f"{key}: {list(found)} instead of {list(stored)}"
        for each in stored.keys() & found.keys():
            yield from _of_values(f"{key} {each}", found[each], stored[each], bound)
    elif isinstance(stored, list) and isinstance(found, list):
        yield from _of_lists(key, found, stored, bound)
    elif isinstance(stored, float) and isinstance(found, int | float):
        yield from _of_numbers(key, np.array(found), np.array(stored), _allowed_alone(name, found, stored, bound))
    elif isinstance(stored, str) and isinstance(found, str):
        yield from _of_texts(key, found, stored, bound)
    elif found != stored or type(found) is not type(stored):
        yield f"{key}: {found!r} instead of {stored!r}"


def _allowed_alone(name, found, stored, bound):
    """Return by how much a number outside of variables may differ."""
    if name.endswith("_error"):
        return np.array(SHARE_OF_ESTIMATE * max(abs(found), abs(stored)))
    return np.array(FACTOR * bound * max(abs(stored), _least_size(name)))


def _of_lists(key, found, stored, bound):
    if len(found) != len(stored):
        yield f"{key}: {found} instead of {stored}"
    elif stored and all(type(each) in (int, float) for each in (*found, *stored)):
        a, b = np.array(found, dtype=float), np.array(stored, dtype=float)
        yield from _of_numbers(key, a, b, np.full(b.shape, FACTOR * bound * _largest(b)))
    else:
        for i, (now, then) in enumerate(zip(found, stored, strict=True)):
            yield from _of_values(f"{key} {i}", now, then, bound)


def _of_texts(key, found, stored, bound):
    """Compare sentences word by word, and numbers in them to the last digit shown."""
    if found.startswith("{") and stored.startswith("{"):
        yield from _of_values(key, json.loads(found), json.loads(stored), bound)
    elif found == stored:
        return
    elif _NUMBER.sub("#", found) != _NUMBER.sub("#", stored):
        yield f"{key}: {found!r} instead of {stored!r}"
    else:
        for now, then in zip(_NUMBER.findall(found), _NUMBER.findall(stored), strict=True):
            a, b = (float(text.replace("−", "-")) for text in (now, then))
            if abs(a - b) > 1.01 * _last_digit(then) + FACTOR * bound * abs(b):
                yield f"{key}: {now} instead of {then} in {stored!r}"


def _last_digit(text):
    """Return the place value of the last digit of a number that has a fraction, 0 of an integer."""
    mantissa, _, exponent = text.partition("e")
    decimals = len(mantissa.partition(".")[2])
    return 10.0 ** (int(exponent or 0) - decimals) if decimals or exponent else 0.0
