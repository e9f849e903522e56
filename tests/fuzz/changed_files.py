"""Files of every kind that the program writes, with a flipped bit or a cut end: each is refused in a sentence, or right.

`python tests/fuzz/changed_files.py` counts them, each in a process of its own, since a damaged file can end one.
"""

import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [path for path in (str(TESTS), str(TESTS / "fuzz")) if path not in sys.path]

from fuzz_calls import network, problem  # noqa: E402
from fuzz_guard import complaint_of_sentence, guarded  # noqa: E402
from old_files import make  # noqa: E402

import dynamics  # noqa: E402
import sgd_check  # noqa: E402
from dynamics import tokens  # noqa: E402
from dynamics.runs.run_file import reopened  # noqa: E402
from dynamics.runs.storage import StorageError, load_tree  # noqa: E402
from dynamics.runs.trackers import Callback  # noqa: E402

#: Changes of each of 34 files: flips of one bit, and cut ends.
FLIPS, CUTS = 7, 3
#: Kinds that are read from the committed files and written by the present program.
UNFINISHED = tuple(make.RUNS)
FINISHED = (
    "decoupled", "prediction", "coupling", "chaos", "sweep", "laws-scaling", "laws-finite-size", "laws-compute-frontier",
    "laws-transfer", "simulation-diffusion", "comparison", "sgd-sample-complexity", "sgd-step-size",
    "sgd-unstable-discretisation", "sgd-transfer", "overlaps-explicit",
)  # fmt: skip
#: A flow and a simulation to go on with, a finished tree.
SAMPLE = (("unfinished", "overlaps-explicit"), ("unfinished", "simulation"), ("finished", "comparison"))
AT = dynamics.SaveAt.geometric(0.5, 30.0, 6)
SWEEP = {"study": "prediction", "workers": 0, "progress": False}
POINTS = "points"


def rewritten(folder, kinds):
    """Write committed files of an earlier version anew; return their paths by (kind, name)."""
    paths = {}
    for kind in ("finished", "unfinished"):
        place = folder / kind
        place.mkdir()
        for path in make.unpack_files(place, kind):
            if (kind, path.stem) not in kinds:
                path.unlink()
                continue
            if kind == "unfinished":
                begun = reopened(path)
                begun.arguments = {name: begun.begun.settings[name] for name in begun.arguments}
                begun.keep(begun.begun.dataset, begun.begun.parts)
            else:
                dynamics.save(dynamics.load(path), path, overwrite=True)
            paths[kind, path.stem] = path
    return paths


def written(folder):
    """Write the kinds that no earlier version wrote; return their paths by (kind, name)."""
    memory = tokens.AssociativeMemory(group_sizes=[2, 2], frequencies=[0.3, 0.2])
    runs = {"learning_rate": 0.5, "seeds": 4, "progress": False}
    paths = {("unfinished", name): folder / f"{name}.nc" for name in ("quadratic", "network", "tokens")}
    paths |= {("finished", name): folder / f"{name}-whole.nc" for name in ("quadratic", "tokens", "calibration")}
    early = {"trackers": [Callback(lambda time, _: time > 3.0)], "save_at": AT, "progress": False}
    square = problem(activation="he2", student="stiefel")
    dynamics.solve_quadratic(square, checkpoint=paths["unfinished", "quadratic"], **early)
    dynamics.solve_network(network(), checkpoint=paths["unfinished", "network"], error_estimate=False, **early)
    limited = {"steps": 10**9, "max_runtime": 0.05, "checkpoint": paths["unfinished", "tokens"]}
    sgd_check.tokens.simulate(memory, **runs, **limited)
    dynamics.save(dynamics.solve_quadratic(square, save_at=AT, progress=False), paths["finished", "quadratic"])
    dynamics.save(sgd_check.tokens.simulate(memory, steps=5, **runs), paths["finished", "tokens"])
    found = sgd_check.calibration(rates=[0.05], repetitions=1, seeds=4, progress=False)
    dynamics.save(found, paths["finished", "calibration"])
    return paths


class KilledError(BaseException):
    """Ends a sweep as a kill does."""


def killed_sweep(folder):
    """Leave the points of a sweep that was killed before it merged them; return the directory and the output."""
    import dynamics.sweeps.sweep as module

    output, merge = folder / "killed.nc", module.merge_points
    module.merge_points = _killed
    try:
        swept(output)
    except KilledError:
        pass
    finally:
        module.merge_points = merge
    return folder / "killed.nc.points", output


def _killed(*_arguments, **_options):
    raise KilledError


def swept(output):
    with dynamics.sweep(problem(), {"seed": [0, 1]}, output=output, **SWEEP) as found:
        return found.load()


def changes(rng, content, flips=FLIPS, cuts=CUTS):
    """Yield a file's content with one bit flipped, so many times, and with its end cut off."""
    for at in range(flips + cuts):
        changed = bytearray(content)
        if at < flips:
            changed[int(rng.integers(len(changed)))] ^= 1 << int(rng.integers(8))
        else:
            del changed[-int(rng.integers(1, (200, len(changed) // 2, len(changed))[at % 3])) :]
        yield bytes(changed)


def held(kind, path):
    """Return all that a file says: its groups, and of a run that has not ended what it goes on from."""
    tree = load_tree(path)
    if kind == "finished":
        return tree, None
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "File .* was begun by")
        begun = reopened(path).begun
    return tree, begun


def equal(one, other):
    (tree, begun), (others, begun_other) = one, other
    if not tree.identical(others):
        return False
    if begun is None:
        return True
    return begun.dataset.identical(begun_other.dataset) and all(
        part.identical(begun_other.parts[name]) for name, part in begun.parts.items()
    )


def complaint(kind, path, whole):
    """Return what is wrong with how a changed file is read, None if it is refused in a sentence or read as it was."""
    try:
        with guarded():
            found = held(kind, path)
    except StorageError as error:
        return complaint_of_sentence(str(error))
    except BaseException as error:
        return f"raises {type(error).__name__}: {str(error)[:200]!r}"
    return None if equal(found, whole) else "says something else"


def complaint_of_sweep(points, output, whole):
    """Return what is wrong with how a sweep goes on from changed files of points."""
    try:
        with guarded(), warnings.catch_warnings(action="ignore"):
            found = swept(output)
    except StorageError as error:
        return complaint_of_sentence(str(error))
    except BaseException as error:
        return f"raises {type(error).__name__}: {str(error)[:200]!r}"
    stamps = ("history", "date_created")
    here, there = (one.drop_attrs(deep=False).assign_attrs({key: value for key, value in one.attrs.items() if key not in stamps})
                   for one in (found, whole))  # fmt: skip
    return None if here.identical(there) else "says something else"


def cases(paths, folder, rng, flips=FLIPS, cuts=CUTS):
    """Yield a label and a function that gives the complaint, for every changed file."""
    given = folder / "given.nc"
    for (kind, name), path in sorted(paths.items()):
        whole, content = held(kind, path), path.read_bytes()
        for at, changed in enumerate(changes(rng, content, flips, cuts)):
            given.write_bytes(changed)
            yield f"{kind} {name} {at}", lambda kind=kind, whole=whole: complaint(kind, given, whole)


def cases_of_sweep(folder, rng, flips=FLIPS, cuts=CUTS):
    """Yield the same of the files of points."""
    points, output = killed_sweep(folder)
    contents = {path: path.read_bytes() for path in sorted(points.iterdir())}
    whole = swept(folder / "whole.nc")
    for at in range(flips + cuts):
        for path in (*points.glob("*"), output):
            path.unlink(missing_ok=True)
        points.mkdir(exist_ok=True)
        for path, content in contents.items():
            path.write_bytes(content)
        path = sorted(contents)[int(rng.integers(len(contents)))]
        path.write_bytes(next(changes(rng, contents[path], *((1, 0) if at < flips else (0, 1)))))
        yield f"points {path.name} {at}", lambda: complaint_of_sweep(points, output, whole)


def main():
    """Print the complaints, and of how many files there is none."""
    rng, count, complaints = np.random.default_rng(11), 0, {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        warnings.simplefilter("ignore")
        paths = rewritten(
            folder, {("unfinished", each) for each in UNFINISHED} | {("finished", each) for each in FINISHED}
        )
        paths |= written(folder)
        for every in (cases(paths, folder, rng), cases_of_sweep(folder, rng)):
            for label, judge in every:
                count += 1
                if text := judge():
                    complaints[label] = text
                    print(f"{label}: {text}", flush=True)
    print(f"{count - len(complaints)} of {count}")
    return bool(complaints)


if __name__ == "__main__":
    sys.exit(main())
