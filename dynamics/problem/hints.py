"""Hints for arguments that do not exist: the name under which a paper or another program knows one of ours."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from hermite.text.messages import refuse, suggestion

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Class = TypeVar("Class", bound=type)

#: Argument -> other names of it.
OTHER_NAMES = {
    "activation": "k link sigma phi nonlinearity information_exponent",
    "teacher": "P beta directions num_directions coefficients target",
    "width": "m neurons num_neurons hidden student_width",
    "dimension": "d dim input_dim input_dimension n_features",
    "learning_rate": "eta lr step_size rate",
    "label_noise": "noise noise_std",
    "initial_norm": "norm init_scale initial_scale",
    "inputs": "spectrum covariance alpha",
    "save_at": "times t_eval time_grid",
    "t_max": "T t_end tmax end_time horizon",
    "seeds": "runs n_runs num_runs num_seeds",
    "seed": "random_state rng",
    "batch_size": "B batch",
    "steps": "n_steps num_steps iterations",
    "inputs_from": "rows data X features",
}
_OURS = {synonym: name for name, synonyms in OTHER_NAMES.items() for synonym in synonyms.split()}
#: Argument -> an example of it.
EXAMPLES = {
    "activation": 'activation="he4"',
    "teacher": "teacher=dynamics.Teacher.power_law(4, beta=1.0)",
    "width": "width=16",
    "dimension": "dimension=256",
    "learning_rate": 'learning_rate="0.1x"',
    "inputs": "inputs=dynamics.Inputs.power_law(0.5)",
    "save_at": "save_at=dynamics.SaveAt.geometric(1.0, 100.0, 50)",
    "t_max": "t_max=100.0",
    "seeds": "seeds=8",
}


def hint(name: str, arguments: Iterable[str]) -> str:
    """Return the end of a message that says which of the arguments an unknown name may mean; empty if none is near.

    >>> hint("k", ["activation", "teacher"])
    ' Use `activation`, such as activation="he4".'
    >>> hint("widht", ["width"]), hint("k", ["width"])
    (' Did you mean `width`?', '')
    """
    names = list(arguments)
    argument = _OURS.get(name)
    if argument not in names:
        return suggestion(name, names, mark="`")
    return f" Use `{argument}`, such as {EXAMPLES[argument]}." if argument in EXAMPLES else f" Use `{argument}`."


def check_names(function: str, keywords: Iterable[str], arguments: Iterable[str]) -> None:
    """Raise Python's TypeError with a hint on the first keyword that is no argument of a function and has a hint."""
    names = list(arguments)
    for name in keywords:
        if name not in names and (end := hint(name, names)):
            refuse(f"{function}() got an unexpected keyword argument {name!r}.{end}", TypeError)


def with_hints(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Return a function whose TypeError on an unknown argument has a hint; its signature stays."""
    parameters = inspect.signature(function).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())

    @wraps(function)
    def hinted(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        """Call the function; TypeError with the nearest name for an unknown argument."""
        if not takes_any:
            check_names(function.__qualname__, kwargs, parameters)
        return function(*args, **kwargs)

    return hinted


def class_with_hints(kind: Class) -> Class:
    """Return a class whose constructor has hints."""
    untyped: Any = kind  # mypy lets no method be assigned to a class that it knows
    untyped.__init__ = with_hints(untyped.__init__)
    return kind
