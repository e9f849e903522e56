"""Damaged, foreign and hostile files made from good ones."""

import copy
import json
import shutil

import netCDF4
import numpy as np

#: Contents that no program of ours has written.
FOREIGN = (
    b"", b"\x00", b"\n", b"\x89HDF\r\n\x1a\n", b"CDF\x01", b"CDF\x02", b"CDF\x05" + bytes(64), b"\x80\x04cos\nsystem\n(S'id'\ntR.",
    b"<html><script>alert(1)</script></html>", b"PK\x03\x04" + bytes(64), b"\x1f\x8b\x08" + bytes(64), b"%PDF-1.7\n",
    b"\x7fELF" + bytes(64), b"#!/bin/sh\ntouch executed\n", b"\x93NUMPY\x01\x00v\x00{'descr': 'O'}", bytes(4096),
    b"\xff" * 4096, b"k = 4\n", b'{"schema_version": 1}', b"import os\n", b"\x89HDF\r\n\x1a\n" + b"\xff" * 2000,
    b"\x89HDF\r\n\x1a\n" + bytes(2000), b"\x89PNG\r\n\x1a\n", b"\xef\xbb\xbf", b"CDF\x01" + b"\xff" * 60,
)  # fmt: skip
#: What an attribute may hold that we never write.
HOSTILE = (
    "", " ", "{", "[]", "null", "3", '"x"', "NaN", "{}", '{"problem": {}}', '{"problem": null, "solver": {}}',
    '{"problem": [], "solver": []}', "[" * 5000, '{"a":' * 2000, "9" * 5000, "__import__('os').system('touch executed')",
    "<script>alert(1)</script>", "../../etc/passwd", "\u202e\u0000".replace("\u0000", "\u0001"), "x" * 100_000, "%s%n%d", "{0}",
    -1, 0, 2, 10**9, 1.5, float("nan"), float("inf"), np.arange(5), np.array([1.5, np.nan]),
)  # fmt: skip
#: Values that no entry of the stored parameters may have.
JSON_VALUES = (None, -1, 0, 1.5, "x", "", [], {}, True, [1], {"a": 1}, 10**400, float("nan"), 10**12, "he999",
                                "open('executed', 'w')", [[1.0]], "9" * 400)  # fmt: skip


def damaged(rng, content):
    """Return a file cut short, with bytes changed, blanked, repeated, or followed by others."""
    changed = bytearray(content)
    kind = int(rng.integers(6))
    if kind == 0:
        del changed[int(rng.integers(len(content))) :]
    elif kind == 1:
        for place in rng.integers(len(content), size=int(rng.integers(1, 30))):
            changed[place] = rng.integers(256)
    elif kind == 2:
        begin = int(rng.integers(len(content) - 512))
        changed[begin : begin + int(rng.integers(1, 512))] = b"\xff" * int(rng.integers(1, 512))
    elif kind == 3:
        changed[int(rng.integers(min(4096, len(content))))] = rng.integers(256)
    elif kind == 4:
        begin = int(rng.integers(len(content)))
        changed[begin:begin] = content[: int(rng.integers(1, 2000))]
    else:
        changed[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def spoilers(rng, number):
    """Yield so many ways to spoil an open file of ours, each with what it does in words."""
    for at in range(number):
        yield (_attribute, _parameter, _values, _version)[at % 4](rng)


def spoiled(source, target, spoil):
    """Copy a file and spoil the copy."""
    shutil.copy(source, target)
    with netCDF4.Dataset(target, "a") as file:
        spoil(file)


def _attribute(rng):
    value = HOSTILE[int(rng.integers(len(HOSTILE)))]
    name = str(
        rng.choice(["parameters", "answer", "stop_reason", "method", "title", "notes", "environment", "history"])
    )

    def spoil(file):
        file.setncattr(name, value)

    return f"{name} = {value!r:.40}", spoil


def _parameter(rng):
    value = JSON_VALUES[int(rng.integers(len(JSON_VALUES)))]
    pick, removed = rng.random(), rng.random() < 0.2

    def spoil(file):
        stored = json.loads(file.parameters)
        table = stored["problem"] if pick < 0.8 else stored["solver"]
        name = sorted(table)[int(pick * 1000) % len(table)]
        changed = copy.deepcopy(stored)
        part = changed["problem"] if pick < 0.8 else changed["solver"]
        if removed:
            del part[name]
        else:
            part[name] = value
        file.parameters = json.dumps(changed)

    return f"parameter {pick:.3f} = {value!r:.40}, removed: {removed}", spoil


def _values(rng):
    pick, value = rng.random(), float(rng.choice([np.nan, np.inf, -np.inf, -1.0, 0.0, 1e308]))

    def spoil(file):
        names = sorted(name for name, variable in file.variables.items() if variable.dtype.kind == "f")
        name = names[int(pick * len(names))]
        file.variables[name][...] = value
        if pick < 0.5:
            file.variables["teacher_coefficient"][...] = value

    return f"variable {pick:.3f} = {value}", spoil


def _version(rng):
    value = HOSTILE[int(rng.integers(len(HOSTILE)))]
    value = value if rng.random() < 0.7 else int(rng.integers(2, 10**9))

    def spoil(file):
        file.setncattr("schema_version", value)

    return f"schema_version = {value!r:.40}", spoil
