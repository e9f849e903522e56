"""Seconds against achieved error, every contender at every tolerance, and the duel of the best at equal error.

A run that exceeds the time limit is ended and recorded as not finished; a contender whose next run would exceed it, by
its own growth so far, is not started. The duel runs the best method of ours and the best library solver in turn, each
at a tolerance that just meets both targets, by its own curve and then in a run, so that the ratio does not see how the
speed of a shared machine drifts.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchmarks.contenders import CONTENDERS, Contender
from benchmarks.problems import H4, Outcome, errors
from benchmarks.references import reference
from benchmarks.worker import RunFailed, Task, TimeLimitReached, Worker

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.journal import Journal

SIZES = (8, 16, 32, 64, 128, 256)
QUICK_SIZES = (8,)
DUEL_SIZES = (8, 16, 32, 64, 128)
#: The flow with k = 2 beside them, for contenders that are not made for h_4 alone.
LOW_SIZE, QUICK_LOW_SIZE = 16, 8
#: An odd number, so that the median is a round.
DUEL_ROUNDS = 3
#: Tolerances tried between an interpolated one that misses and the measured one that does not.
SOUND_TRIES = 2
TARGET_LOSS = 1e-5
TARGET_TIME = 1e-4
#: From this size on only the three tightest tolerances are run: the others are far from the targets.
LARGE = 32
#: Numbers of BLAS threads to choose from, by the loosest tolerance; two never help products of fewer rows.
THREADS = (1, 2)
THREADED_SIZE = 32


def shortfall(point: dict[str, Any]) -> float:
    """Return by what factor a point misses the targets: 1 or less meets both; infinite if it misses emergences."""
    if point["status"] != "done" or point["missed"]:
        return math.inf
    return float(max(point["loss_error"] / TARGET_LOSS, point["time_error"] / TARGET_TIME))


def run(journal: Journal, sizes: Sequence[int], limit: float, names: Sequence[str], link: str = H4) -> dict[str, Any]:
    """Measure the named contenders at every size; return points, references and duels."""
    contenders = [CONTENDERS[name] for name in names if link == H4 or CONTENDERS[name].any_link]
    points: list[dict[str, Any]] = []
    references = []
    duels = []
    for size in sizes:
        exact, known = reference(size, link=link)
        references.append(known)
        good = f"{known['loss_error']:.1g} (loss), {known['time_error']:.1g} (times)"
        print(f"{link}, m = P = {size}: reference good to {good}")
        for contender in contenders:
            if size <= contender.largest:
                points.extend(_curve(journal, contender, size, exact, points, limit, link))
        if size in DUEL_SIZES or size == sizes[-1]:
            duel = _duel(journal, size, exact, points, limit, link)
            duels.extend([duel] if duel else [])
    settings = {contender.name: contender.settings for contender in contenders}
    return {
        "points": points,
        "references": references,
        "duels": duels,
        "settings": settings,
        "limit": limit,
        "link": link,
    }


def _curve(
    journal: Journal,
    contender: Contender,
    size: int,
    exact: Outcome,
    before: list[dict[str, Any]],
    limit: float,
    link: str,
) -> Iterator[dict[str, Any]]:
    """Measure one contender at one size, loosest tolerance first, until it exceeds the limit."""
    tolerances = contender.tolerances[-3:] if size >= LARGE else contender.tolerances
    threads = 0
    expected = _expected_seconds(contender, tolerances[0], before)
    with Worker(contender.name) as worker:
        for rtol in tolerances:
            if expected > limit:
                yield _not_run(contender, Task(size, rtol), f"not started: would take more than {limit:.0f} s")
                return
            tried = (threads,) if threads else _threads_to_try(contender, size)
            measured = [
                _measured(journal, worker, contender, Task(size, rtol, count, link=link), exact, limit)
                for count in tried
            ]
            best = min(measured, key=lambda point: point.get("seconds", math.inf))
            threads = best["threads"]
            yield best
            if best["status"] != "done":
                return
            expected = 1.2 * best["seconds"]


def _threads_to_try(contender: Contender, size: int) -> tuple[int, ...]:
    return (1,) if contender.own_threads or size < THREADED_SIZE else THREADS


def _expected_seconds(contender: Contender, rtol: float, before: list[dict[str, Any]]) -> float:
    """Extrapolate the cost from the size before; infinite if nothing was finished there."""
    mine = [p for p in before if p["contender"] == contender.name]
    if not mine:
        return 0.0
    last = max(p["size"] for p in mine)
    at_last = [p for p in mine if p["size"] == last and p["status"] == "done"]
    if not at_last:
        return math.inf
    nearest = min(at_last, key=lambda p: abs(math.log(p["rtol"] / rtol)))
    return float(nearest["seconds"] * contender.growth)


def _measured(
    journal: Journal, worker: Worker, contender: Contender, task: Task, exact: Outcome, limit: float
) -> dict[str, Any]:
    key = f"{contender.name}{_named(task.link)}, m = P = {task.size}, rtol {task.rtol:g}"
    if not contender.own_threads:
        key += f", {task.threads} BLAS threads"
    point: dict[str, Any] = journal.measure(key, lambda: _point(worker, contender, task, exact, limit))
    return point


def _point(worker: Worker, contender: Contender, task: Task, exact: Outcome, limit: float) -> dict[str, Any]:
    try:
        outcome = worker.solve(task, limit)
    except TimeLimitReached:
        return _not_run(contender, task, f"not finished in {limit:.0f} s")
    except RunFailed as error:
        return _not_run(contender, task, f"failed: {error}")
    found = errors(outcome, exact)
    return {
        "contender": contender.name,
        "ours": contender.ours,
        "size": task.size,
        "rtol": task.rtol,
        "threads": task.threads,
        "status": "done",
        "seconds": outcome.seconds,
        "loss_error": found.loss,
        "time_error": found.emergence_time,
        "missed": found.missed,
        "evaluations": outcome.evaluations,
    }


def _not_run(contender: Contender, task: Task, status: str) -> dict[str, Any]:
    return {
        "contender": contender.name,
        "ours": contender.ours,
        "size": task.size,
        "rtol": task.rtol,
        "threads": task.threads,
        "status": status,
    }


def at_targets(points: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return seconds and rtol at which one contender's curve meets both targets, or None if it never does.

    Interpolates ln seconds and ln rtol in ln shortfall between the last point that misses and the first that meets;
    a curve that meets from the start gives its loosest point.
    """
    curve = sorted((p for p in points if math.isfinite(shortfall(p))), key=lambda p: -p["rtol"])
    meets = next((i for i, p in enumerate(curve) if shortfall(p) <= 1.0), None)
    if meets is None:
        return None
    good = curve[meets]
    part = 0.0
    if meets > 0:
        poor = curve[meets - 1]
        part = math.log(1.0 / shortfall(good)) / math.log(shortfall(poor) / shortfall(good))
        # A little inside, so that the achieved error stays below the target.
        part *= 0.9
    else:
        poor = good
    mixed = {name: good[name] ** (1.0 - part) * poor[name] ** part for name in ("seconds", "rtol")}
    return {"contender": good["contender"], "threads": good["threads"], "meets": good["rtol"], **mixed}


def _best(points: list[dict[str, Any]], size: int, *, ours: bool) -> dict[str, Any] | None:
    names = dict.fromkeys(p["contender"] for p in points if p["ours"] == ours)
    found = [at_targets([p for p in points if p["contender"] == name and p["size"] == size]) for name in names]
    return min((f for f in found if f), key=lambda f: f["seconds"], default=None)


def _duel(
    journal: Journal, size: int, exact: Outcome, points: list[dict[str, Any]], limit: float, link: str
) -> dict[str, Any] | None:
    ours, library = _best(points, size, ours=True), _best(points, size, ours=False)
    if ours is None or library is None:
        return None
    key = f"duel at equal error{_named(link)}, m = P = {size}: {ours['contender']} against {library['contender']}"
    result: dict[str, Any] = journal.measure(
        key, lambda: _alternate(Task(size, 0.0, link=link), exact, ours, library, limit)
    )
    return result


def _named(link: str) -> str:
    """Return a link as part of a key; those of h_4 have been without it."""
    return "" if link == H4 else f", {link}"


def _sound(worker: Worker, task: Task, exact: Outcome, chosen: dict[str, Any], limit: float) -> dict[str, Any]:
    """Return the tolerance of a duel that meets both targets: curves jump where one step decides an early escape.

    Between the tolerance that was interpolated and the measured one that meets the targets, halfway in the logarithm
    each time.
    """
    rtol, good = chosen["rtol"], chosen["meets"]
    for _ in range(SOUND_TRIES):
        outcome = worker.solve(replace(task, rtol=rtol, threads=chosen["threads"]), 2.0 * limit)
        found = errors(outcome, exact)
        if not found.missed and found.loss <= TARGET_LOSS and found.emergence_time <= TARGET_TIME:
            return {**chosen, "rtol": rtol}
        rtol = math.sqrt(rtol * good)
    return {**chosen, "rtol": good}


def _alternate(
    task: Task, exact: Outcome, ours: dict[str, Any], library: dict[str, Any], limit: float
) -> dict[str, Any]:
    """Run both in turn, in processes that stay warm; return seconds, achieved errors and the ratios round by round."""
    seconds: dict[str, list[float]] = {"ours": [], "library": []}
    achieved: dict[str, Any] = {}
    with Worker(ours["contender"]) as first, Worker(library["contender"]) as second:
        workers = {"ours": first, "library": second}
        sides = {
            side: _sound(workers[side], task, exact, best, limit)
            for side, best in (("ours", ours), ("library", library))
        }
        for _ in range(DUEL_ROUNDS):
            for side, chosen in sides.items():
                outcome = workers[side].solve(
                    replace(task, rtol=chosen["rtol"], threads=chosen["threads"]), 2.0 * limit
                )
                seconds[side].append(outcome.seconds)
                found = errors(outcome, exact)
                achieved[side] = {
                    "contender": chosen["contender"],
                    "rtol": chosen["rtol"],
                    "threads": chosen["threads"],
                    "loss_error": found.loss,
                    "time_error": found.emergence_time,
                    "missed": found.missed,
                    "evaluations": outcome.evaluations,
                }
    ratios = sorted(b / a for a, b in zip(seconds["ours"], seconds["library"], strict=True))
    return {
        "size": task.size,
        "link": task.link,
        **{side: {**achieved[side], "seconds": seconds[side]} for side in sides},
        "ratio": statistics.median(ratios),
        "ratios": ratios,
    }
