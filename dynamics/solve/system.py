"""A system of equations of a user's own: the class `System`, from which it derives, and `solve_system`."""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, is_dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack

import numpy as np
from numba import NumbaError
from numba.extending import is_jitted
from numpy.typing import ArrayLike

from dynamics.equations import interface
from dynamics.integrators import stepper_of
from dynamics.integrators.system_calls import BoundSystem
from dynamics.kernels.cache import is_interpreted
from dynamics.problem.checks import check_type, checked_integers, field_values, require
from dynamics.problem.question import OWN, Question
from dynamics.problem.saved_times import SaveAt
from dynamics.runs.storage import StorageError
from dynamics.runs.variables import VARIABLES, Variable
from dynamics.solve.arguments import SystemArguments, integrated
from dynamics.solve.integration import AnswerCall, Integration, PlainMethod, integrate
from hermite.arrays import Array, Integers, as_scalar, real_array
from hermite.text.messages import refuse, shown

if TYPE_CHECKING:
    import xarray as xr

    from dynamics.integrators import Stepper

Dims = tuple[str, ...]

_ARGUMENTS = ("t", "y", "out", "constants", "sizes", "work")
#: Function -> its arguments, by their usual names.
SIGNATURES = {
    "field": _ARGUMENTS,
    "events": _ARGUMENTS,
    "normalise": ("y", "constants", "sizes"),
    "jacobian_diagonal": _ARGUMENTS,
    "jacobian_product": ("t", "y", "v", "out", "constants", "sizes", "work"),
}
#: Numbers behind an array that a function fills, which it must leave alone.
_MARGIN = 64
#: Value of the margin and of unwritten numbers.
_UNTOUCHED = -1.2345678e300


class System:
    """A system of equations y' = field(t, y) of your own, for `solve_system`.

    A subclass is a dataclass, best ``@dataclass(frozen=True)``: its fields are what a dataset stores and a sweep
    varies, numbers, text, arrays, lists of them, or a `Problem`. It has functions compiled by ``numba.njit``, written
    in the class or above it, of which all but the first may be missing:

    * ``field(t, y, out, constants, sizes, work)`` writes y' into `out`;
    * ``events(t, y, out, constants, sizes, work)`` writes a number per event, which happens when that rises to 0;
    * ``normalise(y, constants, sizes)`` puts an accepted state back on its constraints, in place;
    * ``jacobian_diagonal(t, y, out, constants, sizes, work)`` writes about the diagonal of ∂y'/∂y, by which "bdf" and
      "sundials" precondition; `out` holds y' first, and `work` the scratch of `field`;
    * ``jacobian_product(t, y, v, out, constants, sizes, work)`` writes ∂y'/∂y · v; without it "bdf" and "sundials" take
      differences of `field`.

    All arrays have one dimension: the state `y` and the direction `v`, (N,) float64; `constants` and `sizes`, what the
    methods of these names return, float64 and int64, with one more integer behind the sizes; `work`, `work_size`
    float64 that keep nothing else between calls. Divisions by zero give infinity; where y' does not exist the functions
    write NaN, and a smaller step is tried. They must raise nothing: an exception is printed and taken for NaN.

    Numba keeps their machine code beside the file that they are in, and sees changes of that file alone: numbers that a
    function takes from another file belong into `constants`.

    Attributes
    ----------
    observables : mapping of str to tuple of str
        Name of what `observe` returns -> its dims behind `time`. If there is a number named `loss`, its numerical error
        and those of the times of events are estimated.
    event_times : mapping of str to tuple of str
        Name of times of events -> their dim: () for a single event, ("mode",) for one per mode; in the order in which
        `events` writes their numbers.
    title, references : str
        What the dataset says of the equations; the title is by default the name of the class.
    work_size : int
        Length of `work`.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import dynamics
    >>> from numba import njit
    >>> @dataclass(frozen=True)
    ... class Growth(dynamics.System):
    ...     rate: float
    ...     event_times = {"half_time": ()}
    ...
    ...     @njit
    ...     def field(t, y, out, constants, sizes, work):
    ...         out[0] = constants[0] * y[0] * (1.0 - y[0])
    ...
    ...     @njit
    ...     def events(t, y, out, constants, sizes, work):
    ...         out[0] = y[0] - 0.5
    ...
    ...     def initial_state(self):
    ...         return [0.1]
    ...
    ...     def constants(self):
    ...         return [self.rate]
    >>> found = dynamics.solve_system(Growth(rate=2.0), save_at=dynamics.SaveAt.at([0.0, 2.0]), progress=False)
    >>> round(float(found.half_time), 6), found.state.values.ravel().round(6).tolist()  # ln(9)/2
    (1.098612, [0.1, 0.858486])
    """

    kind: ClassVar[str] = OWN
    title: ClassVar[str] = ""
    references: ClassVar[str] = ""
    observables: ClassVar[Mapping[str, Dims]] = {"state": ("component",)}
    event_times: ClassVar[Mapping[str, Dims]] = {}
    work_size: int = 0
    field: ClassVar[object] = None
    events: ClassVar[object] = None
    normalise: ClassVar[object] = None
    jacobian_diagonal: ClassVar[object] = None
    jacobian_product: ClassVar[object] = None

    def __new__(cls, *_: object, **__: object) -> Self:
        """Refuse a class that is no dataclass."""
        subclass: object = cls
        require(
            is_dataclass(subclass),
            f"System {cls.__name__} must be a dataclass, but is none: write @dataclass(frozen=True) above it.",
            error=TypeError,
        )
        return super().__new__(cls)

    def initial_state(self) -> ArrayLike:
        """Return the state at t = 0, (N,)."""
        raise NotImplementedError

    def constants(self) -> ArrayLike:
        """Return the numbers that the functions receive."""
        return ()

    def sizes(self) -> Sequence[int]:
        """Return the integers that the functions receive."""
        return ()

    def observe(self, state: Array) -> Mapping[str, Any]:
        """Return the records of a state, by the names of `observables`."""
        return {"state": state}

    def coordinates(self) -> Mapping[str, ArrayLike]:
        """Return the labels along dims, by name; a dim may have none."""
        return {}

    def absolute_tolerance(self, atol: float) -> ArrayLike:
        """Return the absolute tolerance of each component, or one for all."""
        return atol

    def parameters(self) -> dict[str, object]:
        """Return the fields and the place of the class as a JSON-ready dict; the program asks for it."""
        values = field_values(self).items()
        return {
            "kind": OWN,
            "system": f"{type(self).__module__}:{type(self).__qualname__}",
            "fields": {name: _plain(value, f"Field `{name}` of {_named(self)}") for name, value in values},
        }

    def arrays(self) -> dict[str, tuple[Dims, Array]]:
        """Return the arrays of problems among the fields; the program asks for it."""
        problems = [value for value in field_values(self).values() if isinstance(value, Question)]
        return {name: array for problem in problems for name, array in problem.arrays().items()}

    def changed(self, **values: object) -> Self:
        """Return the system with other values of these fields, as a sweep over them asks for."""
        return replace(self, **values)  # type: ignore[type-var]


@dataclass(frozen=True, eq=False)
class StoredSystem:
    """The parameters of a system in a file, where no code is stored; arrays are with the result."""

    stored: Mapping[str, object]
    kind: ClassVar[str] = OWN

    def parameters(self) -> dict[str, object]:
        """Return the parameters as the system gave them."""
        return dict(self.stored)

    def arrays(self) -> dict[str, tuple[Dims, Array]]:
        """Return an empty dict, since the arrays are stored with the result."""
        return {}

    @classmethod
    def from_dataset(cls, dataset: xr.Dataset) -> Self:
        """Return the parameters that a result holds."""
        return cls(dict(json.loads(dataset.attrs["parameters"])["problem"]))


def _check(system: object) -> None:
    """Raise TypeError unless `system` is an instance of a subclass of System whose fields can be stored."""
    if not isinstance(system, System):
        kind = system.__name__ if isinstance(system, type) else type(system).__name__
        refuse(
            f"Argument `system` must be an instance of a subclass of dynamics.System, but is {kind}.", error=TypeError
        )
    system.parameters()


@integrated(OWN, SystemArguments, before="keep", method="explicit")
def solve_system(system: System, *, save_at: SaveAt, **shared: Unpack[SystemArguments]) -> xr.Dataset:
    r"""Integrate a system of your own, :math:`y' = f(t, y)`, by the methods of all answers.

    Parameters
    ----------
    system : System
    save_at : SaveAt
        Saved times.

    Returns
    -------
    Dataset
        The observables along `time` ("summary": those that are one number per time), and the times of events, NaN for
        those that did not happen.

    Notes
    -----
    Tolerances are of every component in a step, `atol` as `System.absolute_tolerance` distributes it. Errors are
    estimated if there is an observable `loss`. To go on with an unfinished file `resume` is given the system again.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from dynamics import SaveAt
    >>> from numba import njit
    >>> @dataclass(frozen=True)
    ... class Decay(System):
    ...     @njit
    ...     def field(t, y, out, constants, sizes, work):
    ...         out[0] = -y[0]
    ...
    ...     def initial_state(self):
    ...         return [1.0]
    >>> found = solve_system(Decay(), save_at=SaveAt.at([0.0, 1.0]), progress=False)
    >>> found.state.values.ravel().round(4).tolist()
    [1.0, 0.3679]
    """
    _check(system)
    check_type("save_at", save_at, SaveAt, "a SaveAt, such as SaveAt.at([...])")
    return integrate(OWN, partial(system_integration, system, save_at), system, {**shared, "save_at": save_at})


def system_integration(system: System, saved_times: SaveAt, run: AnswerCall) -> Integration:
    """Return the integration of a user's own system.

    Raise ValueError or TypeError if its methods do not fit together.
    """
    equations = _Equations(system, run.atol)
    observables = _dims(system.observables, "observables", _named(system))
    event_times = _dims(system.event_times, "event_times", _named(system))
    has_loss = observables.get("loss") == ()
    require(
        has_loss or not run.error_estimate,
        "Argument `error_estimate` must be None or False without an observable `loss`, but is True.",
    )
    coords = {str(name): np.asarray(values) for name, values in system.coordinates().items()}
    lengths = {"time": len(saved_times)} | _lengths(system, observables, coords, equations.initial_state)
    events = {name: _count(name, dims, lengths, equations.named) for name, dims in event_times.items()}
    equations.num_events = sum(1 if count is None else count for count in events.values())
    kept = [name for name, dims in observables.items() if run.keep == "full" or dims == ()]
    labelled = {dim for dims in (*map(observables.__getitem__, kept), *event_times.values()) for dim in dims}
    errors = ["loss_error", *(f"{name}_error" for name in event_times)]
    names = Counter((*lengths, *system.arrays(), *errors, *observables, *event_times))
    for twice in (name for name, count in names.items() if count > 1):
        refuse(f"What {equations.named} observes must have names of its own, but `{twice}` has another meaning.")

    def observe(state: Array) -> Mapping[str, object]:
        records = system.observe(state)
        return {name: records[name] for name in kept}

    return Integration(
        title=equations.name,
        saved_times=saved_times,
        method=PlainMethod(equations, run.method, run.atol, make=_checked_stepper),
        observe=observe,
        start=equations.initial_state,
        events=events,
        constants={},
        coords={name: values for name, values in coords.items() if name in labelled},
        attributes=lambda _: {"references": system.references, "event_times": " ".join(events)},
        loss=(lambda state: float(system.observe(state)["loss"])) if has_loss and run.estimates(run.method) else None,
        variables=_variables(observables, event_times, coords),
    )


def stored_again(system: object, stored: StoredSystem, place: str) -> System:
    """Return `system` if its class and fields are those in the file at `place`; raise StorageError otherwise."""
    then = stored.parameters()
    if not isinstance(system, System):
        argument = "none is given" if system is None else f"{shown(system)} is given"
        refuse(
            f"File {place!r} must be resumed with its system, `dynamics.resume(path, system=…)` of the class "
            f"{then.get('system')}, since files hold no code, but {argument}.",
            error=StorageError,
        )
    now = json.loads(json.dumps(system.parameters()))
    # An imported script has another module name.
    place_now, place_then = (str(parameters.get("system")).partition(":")[2] for parameters in (now, then))
    require(
        [now["fields"], place_now] == [then.get("fields"), place_then],
        f"Argument `system` must have the class and the fields that are stored in {place!r}, but is "
        f"{place_now} with {shown(now['fields'])}.",
        error=StorageError,
    )
    return system


class _Equations(interface.EquationSystem):
    """A user's system, checked, with the attributes that methods and the run loop read."""

    def __init__(self, system: System, atol: float) -> None:
        """Read and check the initial state, the numbers, the tolerances and the functions of a user's system.

        `atol` is what the user's `absolute_tolerance` is asked with. ValueError names the method that returns something
        else than it must.
        """
        self.named, self.name = _named(system), system.title or type(system).__name__
        self.initial_state = _vector(system.initial_state(), "initial_state", self.named)
        count = self.initial_state.size
        require(count, f"`initial_state` of {self.named} must hold at least one number, but is empty.")
        self.parameters = _vector(system.constants(), "constants", self.named)
        self.sizes = _integers(system.sizes(), "sizes", self.named)
        self.work_size = int(_integers([system.work_size], "work_size", self.named)[0])
        tolerances = _array(system.absolute_tolerance(atol), f"`absolute_tolerance` of {self.named}")
        require(
            tolerances.shape in ((), (count,)) and (np.isfinite(tolerances) & (tolerances > 0.0)).all(),
            f"`absolute_tolerance` of {self.named} must return one positive number, or {count} of them, but returns "
            f"{shown(tolerances.tolist())}.",
        )
        self.atol = np.full(count, tolerances)
        self.functions = interface.Functions(*(_function(system, name) for name in SIGNATURES))

    def absolute_tolerance(self, atol: float) -> Array:  # noqa: ARG002
        """Return the absolute tolerance of each component, (N,), as the user's system set it."""
        return self.atol


def _checked_stepper(equations: _Equations, method: str, **settings: Any) -> Stepper:
    """Return a stepper of the equations.

    Raise TypeError if they do not compile, ValueError if they write bad numbers.
    """
    start, named = equations.initial_state, equations.named
    try:
        bound = BoundSystem(equations, implicit=method in ("bdf", "sundials"))
        with np.errstate(all="ignore"):  # in compiled code it is so
            values = _written(lambda out: bound.rhs(0.0, start.copy(), out), start.size, "field", named)
            _written(lambda out: bound.event_values(0.0, start.copy(), out), equations.num_events, "events", named)
    except NumbaError as error:
        reason = next((line for line in str(error).splitlines() if line.strip() and "nopython" not in line), "")
        refuse(
            f"The functions of {named} must compile, but do not: {' '.join(reason.split())}",
            error=TypeError,
            cause=error,
        )
    _check_finite(values, "field", named, " at the start")
    return stepper_of(equations, method, **settings)


def _written(fill: Callable[[Array], None], count: int, name: str, named: str) -> Array:
    """Return the `count` numbers that `fill` writes into the array it receives; raise ValueError for fewer or more.

    `name` is that of the user's function, and `named` that of the system, both for the message.
    """
    whole = np.full(count + _MARGIN, _UNTOUCHED)
    with suppress(IndexError):  # of functions that Python runs
        fill(whole[:count])
    written = np.flatnonzero(whole != _UNTOUCHED)
    last = int(written[-1]) if written.size else -1
    numbers = f"the {count} numbers of `out`" if name == "field" else f"{count} numbers, as `event_times` say"
    written_text = f"position {last}" if last >= count else f"{written.size} of them"
    require(
        written.size == count and last == count - 1,
        f"`{name}` of {named} must write {numbers}, but writes {written_text}.",
    )
    return whole[:count]


def _function(system: System, name: str) -> Any:
    """Return a function of a system, None if it has none; refuse one that is not compiled or takes other arguments."""
    function, named = getattr(type(system), name), _named(system)
    if function is None:
        require(
            name != "field",
            f"{named} must have a function `field({', '.join(_ARGUMENTS)})`, but has none.",
            error=TypeError,
        )
        return None
    require(
        is_jitted(function) or (is_interpreted() and callable(function)),
        f"`{name}` of {named} must be compiled by numba.njit, but is {type(function).__name__}.",
        error=TypeError,
    )
    parameters = list(inspect.signature(function.py_func if is_jitted(function) else function).parameters)
    require(
        len(parameters) == len(SIGNATURES[name]),
        f"`{name}` of {named} must take {', '.join(SIGNATURES[name])}, but takes {', '.join(parameters) or 'nothing'}.",
        error=TypeError,
    )
    return function


def _named(system: System) -> str:
    """Return how messages call a system, such as "system Growth"."""
    return f"system {type(system).__name__}"


def _vector(values: ArrayLike, name: str, named: str) -> Array:
    """Return values as a new array of one dimension.

    Raise ValueError for another shape or numbers that are not finite.
    """
    vector = np.array(_array(values, f"`{name}` of {named}"))
    require(vector.ndim == 1, f"`{name}` of {named} must have one dimension, but has shape {vector.shape}.")
    _check_finite(vector, name, named)
    return vector


def _check_finite(values: Array, name: str, named: str, place: str = "") -> None:
    """Raise ValueError, with the first bad position, unless all values are finite."""
    if (bad := np.flatnonzero(~np.isfinite(values))).size:
        refuse(f"`{name}` of {named} must be finite{place}, but is {values[bad[0]]} at position {bad[0]}.")


def _array(values: ArrayLike, name: str) -> Array:
    """Return values as an array of real numbers; raise TypeError if they are none."""
    try:
        return real_array(values, name)
    except TypeError:
        refuse(f"{name} must be an array of real numbers, but is {shown(values)}.", error=TypeError)


def _integers(values: object, name: str, named: str) -> Integers:
    """Return values as an int64 array; raise TypeError unless they are integers of at least 0."""
    try:
        return np.array(checked_integers(values, name, "integers"), dtype=np.int64)
    except (TypeError, ValueError):
        refuse(f"`{name}` of {named} must hold integers of at least 0, but is {shown(values)}.", error=TypeError)


def _dims(table: Mapping[str, Dims], attribute: str, named: str) -> dict[str, Dims]:
    """Return the table of names and dims of an attribute; raise TypeError unless dims are tuples of text."""
    require(
        isinstance(table, Mapping)
        and all(
            isinstance(dims, tuple) and all(isinstance(word, str) for word in (name, *dims))
            for name, dims in table.items()
        ),
        f'`{attribute}` of {named} must be a dict such as {{"overlap": ("mode",)}}, but is {shown(table)}.',
        error=TypeError,
    )
    return dict(table)


def _lengths(
    system: System, observables: Mapping[str, Dims], coords: Mapping[str, Any], start: Array
) -> dict[str, int]:
    """Return the length of every dim by name, as the coordinates and the observables of the start have it.

    Raise ValueError if a dim has two lengths, or an observable other dims than it declares.
    """
    named, lengths = _named(system), {}
    for name, labels in coords.items():
        require(
            labels.ndim == 1 and name != "time",
            f"`coordinates` of {named} must be lists, none of time, but `{name}` has shape {labels.shape}.",
        )
        lengths[name] = labels.size
    records = system.observe(start.copy())
    if not isinstance(records, Mapping) or set(records) != set(observables):
        value = list(records) if isinstance(records, Mapping) else records
        refuse(f"`observe` of {named} must return a dict with {', '.join(observables)}, but returns {shown(value)}.")
    shaped = {name: (dims, array.shape) for name, (dims, array) in system.arrays().items()}
    for name, dims in observables.items():
        shaped[name] = dims, _array(records[name], f"`{name}` that {named} observes").shape
    for name, (dims, shape) in shaped.items():
        require(
            len(shape) == len(dims),
            f"`{name}` that {named} observes must have the dims {dims}, but has shape {shape}.",
        )
        for dim, length in zip(dims, shape, strict=True):
            first_length = lengths.setdefault(dim, length)
            require(
                first_length == length,
                f"Dim {dim!r} of {named} must have one length, but has {first_length} and, in `{name}`, {length}.",
            )
    return lengths


def _count(name: str, dims: Dims, lengths: Mapping[str, int], named: str) -> int | None:
    """Return the number of event times of a name, None for a single time without dims."""
    known_dims = [dim for dim in lengths if dim != "time"]
    require(
        not dims or (len(dims) == 1 and dims[0] in known_dims),
        f"`event_times` of {named} must give `{name}` no dim or one that an observable or a coordinate has "
        f"({', '.join(map(repr, known_dims)) or 'none'}), but give it {dims}.",
    )
    return lengths[dims[0]] if dims else None


def _variables(
    observables: Mapping[str, Dims], event_times: Mapping[str, Dims], coords: Mapping[str, object]
) -> dict[str, Variable]:
    """Return dims and label of each variable, from the table of this package if that has it with these dims."""
    dims_of = {name: ("time", *dims) for name, dims in observables.items()} | {name: (name,) for name in coords}
    of_system = {
        name: Variable(dims, name.replace("_", " "), "") for name, dims in (dims_of | dict(event_times)).items()
    }
    for name, dims in event_times.items():
        of_system[f"{name}_error"] = Variable(dims, f"estimated numerical error of the {name.replace('_', ' ')}", "")
    tabulated = {
        name: VARIABLES[name]
        for name, variable in of_system.items()
        if name in VARIABLES and VARIABLES[name].dims == variable.dims
    }
    return {**VARIABLES, **of_system, **tabulated}


def _plain(value: Any, name: str) -> Any:
    """Return a field as JSON-ready values; raise TypeError if it cannot be stored."""
    value = as_scalar(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Question):
        return value.parameters()
    if isinstance(value, Mapping):
        return {str(key): _plain(entry, name) for key, entry in value.items()}
    require(
        isinstance(value, (np.ndarray, list, tuple)),
        f"{name} must be a number, text, an array, a list of them or a Problem, but is {shown(value)}.",
        error=TypeError,
    )
    return value.tolist() if isinstance(value, np.ndarray) else [_plain(entry, name) for entry in value]
