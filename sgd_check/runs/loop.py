"""The loop of the experiment: from look to look, with the clock, Ctrl-C and the file served in between.

Knows an engine, a plan and a recorder; nothing of problems, samples or labels.
"""

from __future__ import annotations

import sys
import time as clock
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dynamics.runs import Interrupts, Rhythm, labelled_arrays
from sgd_check.engines.registry import ResumableEngine, SpanEngine

if TYPE_CHECKING:
    from collections.abc import Callable

    import xarray as xr

    from dynamics.runs import Begun
    from sgd_check.engines.registry import Engine
    from sgd_check.runs.plan import Plan
    from sgd_check.runs.recording import Recorder

__all__ = ["Reached", "parts_of", "restored", "take_course"]

# Between two looks the clock, the progress bar and Ctrl-C are served after so many steps at first, and then about this
# often, in seconds; how a run is cut changes no bit of it.
TICK_STEPS = 512
TICK_SECONDS = 0.1
#: Parts of a checkpoint.
ENGINE, RECORDER = "engine", "recorder"


@dataclass
class Reached:
    """How far the runs are: the step of the last look, the steps that were taken, and the seconds that this cost.

    `intact` says whether the engine stands between two steps, so that it can be kept.
    """

    look: int = -1
    step: int = 0
    seconds: float = 0.0
    intact: bool = True


def take_course(
    engine: Engine,
    plan: Plan,
    recorder: Recorder,
    begun: Reached,
    *,
    budget: float,
    progress: bool | None,
    every: float,
    keep: Callable[[Reached], None] | None,
) -> tuple[Reached, str]:
    """Advance from look to look until the end, the budget, an interruption, or until every run blew up.

    Parameters
    ----------
    engine, plan, recorder
    begun : Reached
        Where engine and recorder stand.
    budget : float
        Seconds of wall-clock time.
    progress : bool or None
        Whether to show a bar; None: if stderr is a terminal.
    every : float
        Seconds between two calls of `keep`.
    keep : callable, optional
        Writes down how far the runs are, for an engine that can be resumed.

    Returns
    -------
    reached, reason
    """
    from tqdm import tqdm

    now, started = replace(begun), clock.perf_counter() - begun.seconds
    deadline = started + begun.seconds + budget
    rhythm, interrupts, tick = Rhythm(every), Interrupts(), TICK_STEPS
    hidden = None if progress is None else not progress
    # The steps of a span are many: it is torn at any instant rather than heard at its end.
    listening = nullcontext() if isinstance(engine, SpanEngine) else interrupts
    bar = tqdm(total=plan.steps, initial=now.step, file=sys.stderr, disable=hidden, leave=False, unit="step")
    reason = "reached_end"
    with engine.running(), bar, listening:
        try:
            for look in plan.looked_at[plan.looked_at > now.look].tolist():
                while now.step < look and not interrupts.heard and (began := clock.perf_counter()) < deadline:
                    now.intact = False
                    if isinstance(engine, SpanEngine):
                        ahead = look
                        if not engine.advance_span(look - now.step, plan.span(now.step, look), deadline):
                            break
                    else:
                        ahead = min(now.step + tick, look)
                        engine.advance(plan.rates(now.step, ahead))
                        if ahead - now.step == tick and clock.perf_counter() - began < 0.5 * TICK_SECONDS:
                            tick *= 2
                    bar.update(ahead - now.step)
                    now.step, now.seconds, now.intact = ahead, clock.perf_counter() - started, True
                    if keep is not None and now.step < look and isinstance(engine, ResumableEngine):
                        rhythm.beat(lambda: keep(now))
                if now.step < look:
                    reason = "interrupted" if interrupts.heard else "max_runtime"
                    break
                now.look, now.intact = look, False
                engine.freeze(recorder.look(look, engine))
                now.intact = True
                if recorder.blown_up.all():
                    reason = "blown_up"
                    break
        except KeyboardInterrupt:
            reason = "interrupted"
    now.seconds = clock.perf_counter() - started
    return now, reason


def parts_of(engine: Engine, recorder: Recorder, now: Reached) -> dict[str, xr.Dataset]:
    """Return the parts of a checkpoint; none for an engine that cannot be resumed, or torn out of a step."""
    import xarray as xr

    if not isinstance(engine, ResumableEngine) or not now.intact:
        return {}
    try:
        state = engine.state()
    except NotImplementedError:
        return {}
    where = {"look": now.look, "step": now.step, "seconds": now.seconds}
    return {
        ENGINE: xr.Dataset(labelled_arrays(state), attrs=where),
        RECORDER: xr.Dataset(labelled_arrays(recorder.state())),
    }


def restored(engine: Engine, recorder: Recorder, begun: Begun) -> Reached:
    """Put engine and recorder where a checkpoint says; return how far that is.

    Raises
    ------
    ValueError
        If the checkpoint is of other runs.
    """
    parts = begun.parts
    try:
        if not isinstance(engine, ResumableEngine):
            raise TypeError
        with engine.running():
            engine.restore({str(name): array.to_numpy() for name, array in parts[ENGINE].data_vars.items()})
        recorder.restore(
            {str(name): array.to_numpy() for name, array in parts[RECORDER].data_vars.items()},
            {str(name): array.to_numpy() for name, array in begun.dataset.data_vars.items()},
        )
        where = parts[ENGINE].attrs
        return Reached(int(where["look"]), int(where["step"]), float(where["seconds"]))
    except (KeyError, TypeError, ValueError) as error:
        msg = f"Argument `checkpoint` must be of the same runs, but is not ({error})."
        raise ValueError(msg) from error
