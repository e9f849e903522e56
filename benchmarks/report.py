"""From `baseline.json` to the tables in docs/benchmarks.md and docs/public_codes.md, between their two markers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from benchmarks.problems import H4
from benchmarks.work_precision import TARGET_LOSS, TARGET_TIME

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

BEGIN, END = "<!-- benchmark table -->", "<!-- end of benchmark table -->"
RIGHT_HAND_SIDE_SIZES = (32, 128, 512)


def write_table(shown: str, page: Path) -> None:
    """Replace what is between the markers of a page.

    Raises
    ------
    ValueError
        If the file does not have both markers.
    """
    text = page.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        msg = f"File `{page.name}` must have the lines {BEGIN!r} and {END!r}, but has not."
        raise ValueError(msg)
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    page.write_text(f"{before}{BEGIN}\n{shown}\n{END}{after}", encoding="utf-8")


def table(baseline: Mapping[str, Any]) -> str:
    """Return the section as Markdown."""
    machine = baseline["machine"]
    lines = [
        f"Medians on {machine['cores']} cores of an {machine['processor']}, CPython {machine['python']}, "
        f"{baseline['date']} (ranges and other numbers: `benchmarks/baseline.json`):",
        "",
        "| work | time |",
        "|---|---|",
    ]
    cases = baseline.get("timed_cases", [])
    lines += [f"| `{c['name']}` | {_short(c['seconds'][1])} |" for c in cases if c["name"].startswith("import")]
    lines += _right_hand_side(cases)
    lines += _growth(baseline.get("growth"))
    lines += _sgd(baseline.get("sgd"))
    lines += _mean_field(baseline.get("mean_field"), machine["processor"])
    lines += _sweep(baseline.get("sweep"))
    if "work_precision" in baseline:
        lines += ["", *_duels(baseline["work_precision"], baseline.get("work_precision_low"))]
    return "\n".join(lines)


def _right_hand_side(cases: list[Mapping[str, Any]]) -> Iterator[str]:
    """One line: seconds of an evaluation, against the bare products."""
    median = {(c["name"], c["size"]): c["seconds"][1] for c in cases if c["group"] == "right-hand side"}
    if not median:
        return
    sizes = ", ".join(str(size) for size in RIGHT_HAND_SIDE_SIZES)
    seconds = ", ".join(_short(median["program", size]) for size in RIGHT_HAND_SIDE_SIZES)
    ratios = ", ".join(f"{median['program', s] / median['three dgemm', s]:.2f}" for s in RIGHT_HAND_SIDE_SIZES)
    yield (f"| one right-hand side, m = P = {sizes} | {seconds}: {ratios} times its matrix products alone |")


def _growth(part: Mapping[str, Any] | None) -> Iterator[str]:
    if part is None:
        return
    done = [p for p in part["directions"] if p["status"] == "done"][1::2]
    usual = done[0]["dimension"] if done else 0
    places = [f"{p['size']}" + (f", d = {p['dimension']}" if p["dimension"] != usual else "") for p in done]
    seconds = ", ".join(f"{_short(p['seconds'])} ({place})" for p, place in zip(done, places, strict=True))
    yield f"| method `{part['method']}`, rtol {part['rtol']:g}, T = 6 d P (m = P) | {seconds} |"


def _sgd(part: Mapping[str, Any] | None) -> Iterator[str]:
    """The engines of the experiment: alone on one core, and beside what one writes by hand."""
    if part is None:
        return
    alone = {tuple(int(v) for v in key.split(", ")): rates[1] for key, rates in part["projected"].items()}
    sizes, dimensions = sorted({m for m, _ in alone}), sorted({d for _, d in alone})
    speeds = ", ".join(_thousands(alone[m, dimensions[0]]) for m in sizes)
    flat = ", ".join(f"{alone[m, dimensions[0]] / alone[m, dimensions[-1]]:.2f}" for m in sizes)
    low, high = (f"10^{round(math.log10(d))}" for d in (dimensions[0], dimensions[-1]))
    yield (
        f"| SGD, projected, one core, m = P = {', '.join(map(str, sizes))} | {speeds} steps a second at d = {low}; "
        f"{flat} times as long a step at d = {high} |"
    )
    if zeroth := part.get("zeroth order"):
        speeds = ", ".join(_thousands(rates[1]) for rates in zeroth.values())
        yield f"| zeroth-order SGD there, at m, d = {'; '.join(zeroth)} | {speeds} steps a second |"
    if "momentum" in part:
        rates = {tuple(key.split(", ")): rate[1] for key, rate in part["momentum"].items()}
        ratios = {m: rates[m, "0.0"] / rates[m, "0.9"] for m, momentum in rates if momentum == "0.9"}
        longer = ", ".join(f"{ratio:.1f}" for ratio in ratios.values())
        yield f"| a step with momentum there, m = P = {', '.join(ratios)} | {longer} times as long as a plain one |"
    # Of one contender on several numbers of threads, the best.
    seconds: dict[str, float] = {}
    for key, rates in part["contenders"].items():
        name = key.partition(",")[0]
        seconds[name] = min(seconds.get(name, math.inf), 1.0 / rates[1])
    lowest = (part["floor"]["normals"] + part["floor"]["products"]) / part["cores"]
    yield (
        f"| a step of one seed, m = P = {part['size']}, d = {part['dimension']} | projected "
        f"{_short(seconds['projected'])}, torch engine {_short(seconds['torch'])} (drawing and products "
        f"{_short(lowest)}), autograd loop {_short(seconds['loop'])} |"
    )


def _mean_field(part: Mapping[str, Any] | None, processor: str) -> Iterator[str]:
    """Ours beside loops by hand over the same particles at equal error, and the run of many particles."""
    if part is None:
        return
    elsewhere = "" if part["processor"] == processor else f" ({part['processor']})"
    for duel in part["targets"][-1:]:
        ours = duel["ours"]["seconds"][1]
        loops = ", ".join(
            f"{label} {duel[name]['seconds'][1] / ours:.0f} times as long"
            for name, label in (("euler", "autograd loop"), ("rk4", "Runge–Kutta loop"))
        )
        yield (
            f"| mean field of h_4, d = {part['dimension']}, {part['particles']} particles, error {duel['target']:g} of "
            f"t(L < 0.1){elsewhere} | {_short(ours)}; {loops} |"
        )
    large = part["large"]
    yield (
        f"| the same of {large['particles']:.0e} particles, d = {large['dimension']}, until t(L < 0.1){elsewhere} | "
        f"{_short(large['seconds'][1])} |"
    )


def _sweep(part: Mapping[str, Any] | None) -> Iterator[str]:
    """A sweep with one worker beside one worker per core."""
    if part is None:
        return
    for size in sorted({entry["size"] for entry in part["rounds"]})[-1:]:
        one, all_, ratios = (
            sorted(entry[name] for entry in part["rounds"] if entry["size"] == size)
            for name in ("one", "all", "speed_up")
        )
        middle = len(ratios) // 2
        yield (
            f"| sweep of {part['points']} flows, m = P = {size}, 1 or {part['cores']} workers | "
            f"{_short(one[middle])} or {_short(all_[middle])}, {ratios[middle]:.2f} times as fast |"
        )


def public_codes_table(part: Mapping[str, Any]) -> str:
    """Return the table of public codes as Markdown."""
    lines = [
        f"CPU seconds on one core of an {part['processor']}, {part['date']} "
        "(sizes and commits: `benchmarks/baseline.json`).",
        "",
        "| trajectory | theirs: error, time | ours: error, time | ratio |",
        "|" + "---|" * 4,
    ]
    for entry in part["rounds"]:
        theirs, ours = entry["theirs"], entry["ours"]
        cells = [
            entry["name"],
            f"{theirs['error']:.1e}, {_short(theirs['seconds'])}",
            f"{format(ours['error'], '.1e') if ours['error'] else '0'}, {_short(ours['seconds'])}",
            _ratio(theirs["seconds"] / ours["seconds"]),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _ratio(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def _thousands(rate: float) -> str:
    return f"{rate / 1e6:.2g} million" if rate >= 1e6 else f"{rate / 1e3:.0f} thousand"


def _duels(part: Mapping[str, Any], low: Mapping[str, Any] | None = None) -> Iterator[str]:
    """Our best method beside the best library solver at equal achieved error."""
    yield (
        f"Equal achieved error ({TARGET_LOSS:g} in the loss, {TARGET_TIME:g} in emergence times), same start; h_4, "
        "β = 1, d = 1024, T = 6 d P (another link: T = 100 P):"
    )
    yield ""
    yield "| m = P | ours | best library solver | library over ours |"
    yield "|---|---|---|---|"
    for duel in [*part["duels"][::2], *(low["duels"] if low else [])]:
        ours, library = (
            f"{duel[side]['contender']}: {_short(sorted(duel[side]['seconds'])[len(duel[side]['seconds']) // 2])}"
            for side in ("ours", "library")
        )
        link = "" if duel.get("link", H4) == H4 else f", {duel['link']}"
        yield f"| {duel['size']}{link} | {ours} | {library} | {duel['ratio']:.1f} |"
    took_part = sorted({p["contender"] for p in part["points"] if not p["ours"]})
    yield ""
    yield f"Compared: {', '.join(took_part)}. [Work-precision diagrams](figures/benchmark_work_precision.png)."


def _short(seconds: float) -> str:
    """Return seconds with two significant digits, small ones in ms or µs."""
    scale, unit = next(((s, u) for s, u in ((1.0, "s"), (1e3, "ms")) if seconds * s >= 1.0), (1e6, "µs"))
    value = seconds * scale
    return f"{value:.0f} {unit}" if value >= 10 else f"{value:.2g} {unit}"
