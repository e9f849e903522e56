"""The studies that a sweep can ask at every point, by name, and their first steps, which compile their functions.

A study is a function of a problem and options that returns a Dataset. The names of this package are in `STUDIES`; other
installed packages add theirs as entry points of the group `feature_emergence.studies`, so that a study is found by its
name without importing, or knowing of, the package that holds it. A path "package.module:function" names any other; to
import it runs code, so that it must come from a caller, never from a file.
"""

from __future__ import annotations

import inspect
import warnings
from functools import partial
from importlib import import_module, metadata
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from dynamics.problem.checks import require
from dynamics.solve.registry import ANSWERS, answers_that
from hermite.text.messages import shown, suggestion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from dynamics.solve.ensemble import Call
    from dynamics.solve.registry import Answer

    Study = str | Callable[..., Any]

#: Name -> "module:function" of the answers of this package that a sweep can ask for.
STUDIES = {answer.name: answer.function for answer in answers_that("sweep")}
ENTRY_POINTS = "feature_emergence.studies"
#: Flow time that the first step of a run passes.
_INSTANT = 1e-9


def study_path(study: object) -> Study:
    """Return a study as what workers can find: "module:function" for a name, the callable itself otherwise."""
    if callable(study):
        return study
    if not isinstance(study, str):
        msg = f"Argument `study` must be a name, a path 'module:function' or a callable, but is {shown(study)}."
        raise TypeError(msg)
    path = registered_path(study)
    if path is not None:
        return path
    if ":" in study:
        return study
    names = [*STUDIES, *_installed()]
    menu = f"{', '.join(map(repr, names))}, a path 'module:function' or a callable"
    msg = f"Argument `study` must be one of {menu}, but is {shown(study)}.{suggestion(study, names)}"
    raise ValueError(msg)


def registered_path(name: str) -> str | None:
    """Return the path of a study by its name in this package or an installed one, None if it has none there."""
    return STUDIES[name] if name in STUDIES else _installed().get(name)


def _installed() -> dict[str, str]:
    return {entry.name: entry.value for entry in metadata.entry_points(group=ENTRY_POINTS)}


def find_study(path: Study) -> Callable[..., Any]:
    """Return the function of a path, or the callable as it is; raise ValueError if the path leads nowhere."""
    if not isinstance(path, str):
        return path
    module, _, name = path.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (Exception, SystemExit) as error:  # a module can end in any way while it is imported
        why = " ".join(str(error).split()) or type(error).__name__
        msg = f"Argument `study` must name a function 'module:function' that exists, but is {shown(path)} ({why})."
        raise ValueError(msg) from None
    require(callable(found), f"Argument `study` must name a function, but {path!r} is {type(found).__name__}.")
    return found  # type: ignore[no-any-return]


def name_of_study(study: Study) -> str:
    """Return the name of a study in datasets, the same in every process."""
    if isinstance(study, partial):
        settings = ", ".join([*map(repr, study.args), *(f"{key}={value!r}" for key, value in study.keywords.items())])
        return f"{name_of_study(study.func)}({settings})"
    if isinstance(study, str):
        return next((name for name, path in STUDIES.items() if path == study), study)
    return f"{getattr(study, '__module__', '')}:{getattr(study, '__qualname__', type(study).__qualname__)}"


def answer_of_many(study: Study) -> Answer | None:
    """Return the answer that a study is, if its points can be answered together."""
    return next((answer for answer in ANSWERS if answer.function == study and answer.build), None)


def call_of(answer: Answer, problem: Any, options: Mapping[str, Any], **known: Any) -> Call:
    """Return a call of an answer whose points can be answered together; `known` are further arguments of `build`."""
    from dynamics.solve.ensemble import Call
    from dynamics.solve.integration import Settings, Watch

    given = {name: value for name, value in {**answer.defaults(), **options}.items() if name != "problem"}
    settings = Settings(**{name: given.pop(name) for name in Settings._fields})
    watch = Watch(**{name: given.pop(name) for name in Watch._fields})
    return Call(problem, settings, partial(resolve_name(answer.build), **given, **known), watch)


def check_options(study: Study, options: Mapping[str, Any], keys: Iterable[str] = ()) -> None:
    """Raise ValueError if the study does not take one of these options, or needs one that is absent.

    `keys` are the keys of the problem, one of which may have been meant.
    """
    function = find_study(study)
    parameters = list(inspect.signature(function).parameters.values())[1:]
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    known = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_POSITIONAL]
    for name in options:
        if name not in known:
            hint = suggestion(name, [*known, *keys], mark="`")
            msg = (
                f"Grid and options must hold what a problem or the study {name_of_study(study)} has, "
                f"but hold `{name}`.{hint}"
            )
            raise ValueError(msg)
    for parameter in parameters:
        require(
            parameter.default is not parameter.empty or parameter.name not in known or parameter.name in options,
            f"Argument `options` must hold `{parameter.name}` for the study {name_of_study(study)}, but does not.",
        )


def takes_option(study: Study, name: str) -> bool:
    """Return whether the study has an option of that name."""
    return name in inspect.signature(find_study(study)).parameters


def compile_study(study: Study, problem: Any, options: Mapping[str, Any]) -> str:
    """Take the first step of a study, so that its kernels are compiled; return why it refuses to, "" if it does not.

    Studies of other packages take no step. Errors in the step itself are told by the point later.
    """
    from dynamics.problem.schedule import SaveAt, checked_schedule
    from dynamics.solve.ensemble import built

    if study not in list(STUDIES.values()):
        return ""
    instant = SaveAt.at([_INSTANT])
    try:
        checked_schedule(options.get("save_at"), instant)
        if study in [answer.function for answer in answers_that("resume")]:
            unwatched = {name: value for name, value in options.items() if name not in ("trackers", "checkpoint")}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if answer := answer_of_many(study):
                    # The end of a run decides which method it takes.
                    unwatched["method"] = built(answer.name, call_of(answer, problem, unwatched)).method.name
                find_study(study)(problem, **{**unwatched, "save_at": instant, "progress": False})
    except (TypeError, ValueError, ImportError) as error:
        return str(error)
    except Exception:
        return ""
    return ""
