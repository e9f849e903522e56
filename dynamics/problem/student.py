"""The student: f(x) = s Σ_i v_i σ(w_i·x + b_i) with the layers that are trained, or one of those that have a name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dynamics.problem.checks import (
    JsonObject,
    check_choice,
    checked_integer,
    checked_link,
    checked_number,
    field_values,
    float_vector,
    read_only,
    require,
)
from dynamics.problem.hints import class_with_hints
from dynamics.problem.question import Compared
from hermite import HermiteExpansion
from hermite.arrays import Array, real_array, real_column
from hermite.expansion import link_in_a_line
from hermite.text.formulas import table_of_pairs
from hermite.text.messages import refuse, shown

#: Kinds of students: those with a name, and a `Student`.
HOMOGENEOUS, COMMITTEE, SPHERICAL, FRAME, NETWORK = "homogeneous", "committee", "spherical", "stiefel", "network"
#: Kind -> the function of `dynamics` that integrates its overlaps, and f(x) in HTML.
_TIED = "Σ<sub>i</sub> |w<sub>i</sub>|² σ(w<sub>i</sub>·x / |w<sub>i</sub>|)"
STUDENTS = {
    HOMOGENEOUS: ("solve_overlaps", _TIED),
    COMMITTEE: ("solve_committee", "Σ<sub>i</sub> σ(w<sub>i</sub>·x)"),
    SPHERICAL: ("solve_mean_field", "(1/m) Σ<sub>i</sub> σ(w<sub>i</sub>·x), |w<sub>i</sub>| = 1"),
    FRAME: ("solve_quadratic", f"{_TIED}, w<sub>i</sub> orthogonal and of one length"),
    NETWORK: ("solve_network", "s Σ<sub>i</sub> v<sub>i</sub> σ(w<sub>i</sub>·x + b<sub>i</sub>)"),
}
#: Tells the draw of biases from that of weights with the same seed.
BIASES_DRAWN = 1
#: Largest scale, rate, decay, bias or v_i, so that their products stay within float64.
LARGEST_SETTING = 1e30
CHOICES = {
    "second_layer": ("trained", "fixed"), "biases": ("none", "fixed", "trained"), "first_layer": ("free", "sphere"),
}  # fmt: skip
#: Output scales that depend on the width.
SCALES = {"1/m": lambda m: 1.0 / m, "1/sqrt(m)": lambda m: 1.0 / np.sqrt(m)}
#: Second layers that are named.
NAMED_STARTS = ("signs", "pairs")


class NetworkStart(NamedTuple):
    """Second layer v (m,), biases b (m,) and weights W (m, D), the teacher's axes first, D ≤ min(d, r + m)."""

    second_layer: Array
    bias: Array
    weights: Array


@class_with_hints
@dataclass(frozen=True, kw_only=True, eq=False)
class Student(Compared):
    r"""A two-layer network, and how it is trained; the student of a `Problem`.

    .. math:: f(x) = s \sum_{i=1}^m v_i\, \sigma(w_i\cdot x + b_i)

    It descends ½ E(f − f*)² with a learning rate per layer and weight decay,

    .. math:: w_i' = -\varepsilon_w \nabla_{w_i} - \kappa_w w_i, \qquad
       v_i' = -\varepsilon_v \partial_{v_i} - \kappa_v v_i, \qquad b_i' = -\varepsilon_b \partial_{b_i}.

    TypeError or ValueError is raised for any other value.

    Parameters
    ----------
    activation : str, dict, sympy expression, callable or HermiteExpansion
        Link σ, anything that `hermite.expand` takes; the function itself, not its series, is what is learned with.
    width : int
        Number of neurons m ≥ 1.
    second_layer : {"trained", "fixed"}
        Whether the v_i move.
    initial_second_layer : {"signs", "pairs"} or array_like, shape (m,)
        Start of the v_i: +1, −1, +1, … ; or +1 for the first half and −1 for the second, whose neuron i + m/2 starts
        with the w and b of neuron i, so that f = 0; or the values themselves, up to 1e30, dimensionless. Under softmax
        of C classes V_ki is 1 for k = i mod C and else 0, in pairs −1 for the second half, or of shape (C, m).
    biases : {"none", "fixed", "trained"}
        Whether neurons have biases b_i, and whether they move.
    initial_biases : float or array_like, shape (m,), default 1
        Standard deviation of Gaussian biases, or the biases themselves, up to 1e30; of use with biases alone.
    first_layer : {"free", "sphere"}
        Whether the w_i are free, or keep their starting length: only the tangential part of the gradient acts.
    scale : float, "1/m" or "1/sqrt(m)", default 1
        Output scale s > 0.
    rates : (float, float, float) or "mean-field", default (1, 1, 1)
        ε_w, ε_v, ε_b ≥ 0 in units of the time; "mean-field" is m for all three. Layers that are fixed ignore theirs.
    decay : (float, float), default (0, 0)
        κ_w, κ_v ≥ 0; set to 0 for neurons that keep their length and for a fixed second layer, which do not decay.
    layer_wise : float, optional
        Flow time T > 0 of the switch of layer-wise training: until then v does not move, and from then on v alone does.
        A step of SGD belongs to the second phase if its middle is not before T. By default all layers move together.

    Examples
    --------
    >>> student = Student(activation="erf", width=4, scale="1/m", rates="mean-field", second_layer="fixed")
    >>> student.output_scale, student.learning_rates
    (0.25, (4.0, 0.0, 0.0))
    """

    activation: HermiteExpansion
    width: int
    second_layer: Literal["trained", "fixed"] = "trained"
    initial_second_layer: str | Array = "signs"
    biases: Literal["none", "fixed", "trained"] = "none"
    initial_biases: float | Array = 1.0
    first_layer: Literal["free", "sphere"] = "free"
    scale: float | Literal["1/m", "1/sqrt(m)"] = 1.0
    rates: tuple[float, float, float] | Literal["mean-field"] = (1.0, 1.0, 1.0)
    decay: tuple[float, float] = (0.0, 0.0)
    layer_wise: float | None = None
    order: int | None = field(default=None, repr=False)

    if TYPE_CHECKING:
        # Types that callers may pass; those of the attributes are above.
        def __init__(
            self,
            *,
            activation: object,
            width: int,
            second_layer: Literal["trained", "fixed"] = "trained",
            initial_second_layer: str | ArrayLike = "signs",
            biases: str = "none",
            initial_biases: float | ArrayLike = 1.0,
            first_layer: Literal["free", "sphere"] = "free",
            scale: float | Literal["1/m", "1/sqrt(m)"] = 1.0,
            rates: Sequence[float] | Literal["mean-field"] = (1.0, 1.0, 1.0),
            decay: Sequence[float] = (0.0, 0.0),
            layer_wise: float | None = None,
            order: int | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        assign = partial(object.__setattr__, self)
        assign("activation", checked_link(self.activation, "activation", self.order))
        assign("order", self.activation.order)
        assign("width", checked_integer(self.width, "width", minimum=1))
        values = field_values(self)
        for name, choices in CHOICES.items():
            check_choice(name, values[name], choices)
        assign("initial_second_layer", self._checked_second_layer())
        assign("initial_biases", self._checked_biases())
        if isinstance(self.scale, str):
            check_choice("scale", self.scale, tuple(SCALES))
        else:
            assign("scale", checked_number(self.scale, "scale", positive=True, maximum=LARGEST_SETTING))
        if isinstance(self.rates, str):
            check_choice("rates", self.rates, ("mean-field",))
        else:
            assign("rates", _checked_numbers("rates", self.rates, ("ε_w", "ε_v", "ε_b")))
        of_first, of_second = _checked_numbers("decay", self.decay, ("κ_w", "κ_v"))
        # Fixed layers do not decay.
        first, second = self.first_layer == "free", self.second_layer == "trained"
        assign("decay", (of_first if first else 0.0, of_second if second else 0.0))
        if self.layer_wise is not None:
            assign("layer_wise", checked_number(self.layer_wise, "layer_wise", positive=True))
            require(
                second and self.phases()[1].learning_rates[1] > 0.0,
                "Argument `layer_wise` must be None unless `second_layer` is 'trained', at a positive rate, but is "
                f"{self.layer_wise:g}.",
            )

    def _checked_second_layer(self) -> str | Array:
        """Return the name of the start of the second layer, or its values, (m,), and (C, m) of several outputs."""
        layer: ArrayLike = self.initial_second_layer
        if not isinstance(layer, str):
            shape = real_array(layer, "initial_second_layer").shape
            if len(shape) == 2 and shape != (self.width, 1):
                return _checked_rows(layer, self.width)
            return _checked_vector("initial_second_layer", layer, self.width)
        check_choice("initial_second_layer", layer, NAMED_STARTS)
        is_right = layer != "pairs" or self.width % 2 == 0
        require(
            is_right, f"Argument `width` must be even where `initial_second_layer` is 'pairs', but is {self.width}."
        )
        return layer

    def _checked_biases(self) -> float | Array:
        """Return the standard deviation of random biases, or the biases (m,)."""
        value: ArrayLike = self.initial_biases
        if np.ndim(value) == 0:
            biases: float | Array = checked_number(value, "initial_biases", positive=False, maximum=LARGEST_SETTING)
        else:
            biases = _checked_vector("initial_biases", value, self.width)
        is_right = self.biases != "none" or (isinstance(biases, float) and biases == 1.0)
        require(is_right, f"Argument `initial_biases` must be absent where `biases` is 'none', but is {shown(value)}.")
        return biases

    # --- derived quantities -------------------------------------------------------------------------------

    @property
    def output_scale(self) -> float:
        """Output scale s."""
        return float(SCALES[self.scale](self.width)) if isinstance(self.scale, str) else self.scale

    @property
    def learning_rates(self) -> tuple[float, float, float]:
        """ε_w, ε_v, ε_b; 0 for layers that are fixed or absent; in layer-wise training those before the switch."""
        w, v, b = self._all_rates()
        is_trained = self.second_layer == "trained" and self.layer_wise is None
        return w, v if is_trained else 0.0, b if self.biases == "trained" else 0.0

    def _all_rates(self) -> tuple[float, float, float]:
        """Return the three rates, also of layers that do not move."""
        return (float(self.width),) * 3 if isinstance(self.rates, str) else self.rates

    def phases(self) -> tuple[Student, ...]:
        """Return the student of each phase of training, with constant rates: itself alone, or two if layer-wise."""
        if self.layer_wise is None:
            return (self,)
        (w, v, b), (of_first, of_second) = self._all_rates(), self.decay
        first = replace(self, layer_wise=None, rates=(w, 0.0, b), decay=(of_first, 0.0))
        return first, replace(self, layer_wise=None, rates=(0.0, v, 0.0), decay=(0.0, of_second))

    def switch_time(self, learning_rate: float | None = None) -> float:
        """Return the time of the switch, inf without one; with a learning rate that of the nearest step of SGD."""
        if self.layer_wise is None or learning_rate is None:
            return np.inf if self.layer_wise is None else self.layer_wise
        return learning_rate * float(np.ceil(self.layer_wise / learning_rate - 0.5))

    @property
    def has_biases(self) -> bool:
        """Whether neurons have biases."""
        return self.biases != "none"

    @property
    def is_paired(self) -> bool:
        """Whether the network starts at f = 0, as pairs of neurons with opposite v_i."""
        return isinstance(self.initial_second_layer, str) and self.initial_second_layer == "pairs"

    def start_of_second_layer(self) -> Array:
        """Return v_i at the start, shape (m,)."""
        if not isinstance(self.initial_second_layer, str):
            return self.initial_second_layer
        signs = np.ones(self.width)
        signs[slice(self.width // 2, None) if self.is_paired else slice(1, None, 2)] = -1.0
        return signs

    def start_of_outputs(self, count: int) -> Array:
        """Return V_ki at the start for `count` outputs, (C, m), or v_i, (m,), for one; ValueError for another shape."""
        layer = self.initial_second_layer
        if count == 1 or not isinstance(layer, str):
            shape = (self.width,) if count == 1 else (count, self.width)
            start = self.start_of_second_layer()
            require(
                start.shape == shape,
                f"Argument `initial_second_layer` must have shape {shape} for {count} "
                f"output{'' if count == 1 else 's'}, but has shape {start.shape}.",
            )
            return start
        numbers = np.arange(self.width)
        half = self.width // 2 if self.is_paired else self.width
        signs = np.where(numbers < half, 1.0, -1.0)
        return np.where(np.arange(count)[:, None] == numbers % half % count, signs, 0.0)

    def start_of_biases(self, rng: np.random.Generator) -> Array:
        """Return b_i at the start, shape (m,), drawn where they are not given."""
        if not self.has_biases:
            return np.zeros(self.width)
        if not isinstance(self.initial_biases, float):
            return self.initial_biases
        halves = 2 if self.is_paired else 1
        return np.tile(self.initial_biases * rng.standard_normal(self.width // halves), halves)

    # --- to and from a file -------------------------------------------------------------------------------

    def parameters(self) -> JsonObject:
        """Return the scalar parameters as a JSON-ready dict; given second layers and biases travel as arrays."""
        values = field_values(self)
        del values["order"]
        if self.layer_wise is None:
            del values["layer_wise"]
        stored = {name: None if isinstance(value, np.ndarray) else value for name, value in values.items()}
        rates = self.rates if isinstance(self.rates, str) else list(self.rates)
        return stored | {"activation": stored_link(self.activation), "rates": rates, "decay": list(self.decay)}

    def arrays(self) -> dict[str, Array]:
        """Return the array-valued inputs by the names of their variables, each of shape (m,), or V of shape (C, m)."""
        name = "initial_output_layer" if np.ndim(self.initial_second_layer) == 2 else "initial_second_layer"
        starts = {name: self.initial_second_layer, "initial_bias": self.initial_biases}
        return {name: values for name, values in starts.items() if isinstance(values, np.ndarray)}

    @classmethod
    def of(cls, stored: JsonObject, second_layer: Array | None, biases: Array | None) -> Student:
        """Return the student from its `parameters` and its `arrays`."""
        arrays, link = {"initial_second_layer": second_layer, "initial_biases": biases}, stored["activation"]
        arguments: JsonObject = {name: arrays.get(name) if v is None else v for name, v in stored.items()}
        return cls(**arguments | {"activation": read_link(link), "order": link["order"]})

    def _repr_html_(self) -> str:
        rows = {"f(x)": STUDENTS[NETWORK][1], "link σ": link_in_a_line(self.activation), **layers_in_html(self)}
        if any(self.decay):
            rows["decay"] = "κ<sub>w</sub> = {:g}, κ<sub>v</sub> = {:g}".format(*self.decay)
        return table_of_pairs(f"<b>Student</b>: {self.width} neuron{'' if self.width == 1 else 's'}", rows)

    def _identity(self) -> tuple[object, ...]:
        layers = (self.initial_second_layer, self.initial_biases)
        starts = tuple((layer + 0.0).tobytes() if isinstance(layer, np.ndarray) else layer for layer in layers)
        trained = (self.second_layer, self.biases, self.first_layer, self.scale, self.rates, self.decay)
        link = (self.activation.link, self.activation.coefficients.tobytes())
        return (*link, self.width, *starts, *trained, self.layer_wise)


def _checked_vector(name: str, values: ArrayLike, width: int) -> Array:
    """Return one number per neuron, shape (m,), of size up to 1e30."""
    vector = float_vector(values, name, width, "neurons")
    if np.abs(vector).max() > LARGEST_SETTING:
        refuse(f"Argument `{name}` must hold numbers of at most {LARGEST_SETTING:g}, but is {shown(values)}.")
    return vector


def _checked_rows(values: ArrayLike, width: int) -> Array:
    """Return a second layer with several outputs, shape (C, m), of size up to 1e30."""
    rows = real_array(values, "initial_second_layer")
    if rows.shape[1] != width or not (np.abs(rows) <= LARGEST_SETTING).all():
        refuse(
            f"Argument `initial_second_layer` must hold numbers of at most {LARGEST_SETTING:g} for each of {width} "
            f"neurons, but is {shown(values)}."
        )
    return read_only(rows)


def _checked_numbers(name: str, values: object, symbols: tuple[str, ...]) -> tuple[float, ...]:
    """Return one number for each of the symbols, finite and at least 0."""
    count, numbers = len(symbols), values
    if hasattr(values, "ndim") and values.ndim:
        numbers = real_column(values, name).tolist()
    if not isinstance(numbers, (tuple, list)) or len(numbers) != count:
        refuse(
            f"Argument `{name}` must hold {count} numbers ({', '.join(symbols)}), but is {shown(values)}.",
            error=TypeError,
        )
    return tuple(checked_number(value, name, positive=False, maximum=LARGEST_SETTING) for value in numbers)


def layers_in_html(student: Student) -> dict[str, str]:
    """Return rows of a table in HTML that say how the layers of a network are trained."""
    named = zip("wvb", np.max([phase.learning_rates for phase in student.phases()], axis=0), strict=True)
    rates = ", ".join(f"ε<sub>{name}</sub> = {rate:g}" for name, rate in named)
    if student.layer_wise is not None:
        rates += f"; until t = {student.layer_wise:g} all but v, then v alone"
    first = "free" if student.first_layer == "free" else "of kept length"
    return {
        "layers": f"w<sub>i</sub> {first}, v<sub>i</sub> {student.second_layer}, biases: {student.biases}",
        "scale and rates": f"s = {student.output_scale:g}, {rates}",
    }


def stored_link(link: HermiteExpansion) -> dict[str, object]:
    """Return a link as JSON-ready values: text where it has one, else its series."""
    written = {"coefficients": link.coefficients.tolist()} if link.text is None else {"text": link.text}
    return {"name": link.name, "order": link.order, **written}


def read_link(stored: JsonObject) -> object:
    """Return the argument of `hermite.expand` that makes a stored link."""
    if "text" in stored:
        return stored["text"]
    return {j: c for j, c in enumerate(stored["coefficients"]) if c != 0.0}
