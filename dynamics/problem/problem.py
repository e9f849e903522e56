"""`Problem`: one frozen, picklable value that every solver, prediction and experiment reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from dynamics.problem.checks import (
    JsonObject,
    check_choice,
    check_memory,
    checked_integer,
    checked_link,
    checked_number,
    first_false,
    flow_numbers,
    read_only,
    require,
)
from dynamics.problem.emergence import ALL_DEGREES, DEFINITIONS, LearnedPart
from dynamics.problem.hints import class_with_hints
from dynamics.problem.inputs import Axes, Inputs, random_whitened, whitened
from dynamics.problem.losses import (
    CLUSTER,
    CORRELATION,
    SQUARED,
    VALUE,
    Objective,
    OwnLoss,
    check_classes,
    check_labels,
    checked_objective,
    needs_points,
    number_of_classes,
    read_objective,
    stored_objective,
)
from dynamics.problem.mixture import Mixture
from dynamics.problem.question import Compared
from dynamics.problem.start import (
    OverlapStart,
    check_rows,
    checked_overlaps,
    orthogonal_rows,
    overlaps_from_weights,
    random_weights,
    weights_from_overlaps,
)
from dynamics.problem.student import (
    BIASES_DRAWN,
    COMMITTEE,
    FRAME,
    HOMOGENEOUS,
    NETWORK,
    SPHERICAL,
    STUDENTS,
    NetworkStart,
    Student,
    layers_in_html,
    read_link,
    stored_link,
)
from dynamics.problem.teacher import Teacher, teacher_formulas
from hermite import HermiteExpansion, expand
from hermite.arrays import Array, real_array
from hermite.expansion import link_in_a_line
from hermite.text.formulas import clean, table_of_pairs
from hermite.text.messages import refuse, shown

if TYPE_CHECKING:
    import xarray as xr

#: Fields that an answer or an engine takes only if it declares so, each with the value that all of them take; inputs
#: that are a `Mixture` are declared by the name `MIXTURE`.
DECLARED_FIELDS: dict[str, object] = {
    "objective": SQUARED, "smoothing": 0.0, "inputs": None, "labels": VALUE, "flip": 0.0, "threshold": 0.0
}  # fmt: skip
MIXTURE = "mixture"
#: Most numbers of a start that is kept once it is drawn: a small flow needs it three times.
FEW_NUMBERS = 4096
#: Largest coefficient of a link: rates hold its fourth power, times those of the teacher and of overlaps.
LARGEST_COEFFICIENT = 1e30
#: How far from 1 the squared length of a neuron given to the spherical student may be.
UNIT_LENGTH_TOLERANCE = 1e-9
#: Variables of the overlaps C, G and n of a given start.
STORED_OVERLAPS = ("initial_teacher_overlap", "initial_student_overlap", "initial_squared_norm")
#: |w_i| at the start by default: of a neuron with the second layer |w_i|², and of any other.
SMALL_NORM, UNIT_NORM = 1e-2, 1.0


@class_with_hints
@dataclass(frozen=True, kw_only=True, eq=False)
class Problem(Compared):
    r"""Teacher, student, start and dimension of one learning problem.

    .. math:: f(x) = \sum_{i=1}^m n_i\, \sigma(u_i \cdot x), \quad n_i = |w_i|^2, \; u_i = w_i/|w_i|,
       \qquad f^*(x) = \sum_p a_p\, \sigma(\theta_p\cdot x), \quad x \sim N(0, I_d)

    Parameters
    ----------
    activation : str, dict, sympy expression, callable or HermiteExpansion
        Link σ, anything that `hermite.expand` takes; absent where `student` is a `Student`, which has one.
    teacher : Teacher
        Coefficients a_p and directions θ_p; the teacher spans the first axes of R^d. It may be absent where the labels
        are those of clusters, and then only names the axes of their means.
    width, dimension : int
        Number of student neurons m ≥ 1, absent where `student` is a `Student`, which has one; input dimension d, at
        least the number of axes that the teacher spans, also a float without fraction, as 1e6.
    initial_norm : float, optional
        σ0 = |w_i(0)| > 0, n_i(0) = σ0²; neurons start uniformly on that sphere. Dimensionless. By default 1e-2, 1 for
        the spherical student and for a `Student`, and m^(−1/4) for the student "stiefel".
    seed : int, default 0
        Draws the start alone, never samples.
    initial_weights : array_like, shape (m, d), optional
        The start, given as weights w_i in R^d.
    initial_overlaps : tuple (C, G, n), optional
        The start, given as C_ip = u_i·θ_p (m, P), G_ij = u_i·u_j (m, m) and n_i = |w_i|² (m,), instead of weights, norm
        or seed. Neurons of the spherical student have length 1, those of "stiefel" are orthogonal and of one length.
    label_noise : float, default 0.0
        Standard deviation τ of Gaussian noise on the labels; seen by SGD only, the population flow does not change
        unless the loss of a `Student` is neither squared nor "correlation".
    inputs : Inputs or Mixture, optional
        Clusters of Gaussians, for a `Student`; or covariance Σ of the inputs, for the homogeneous student and a
        `Student` with a free first layer; by default the identity. Then n_i = w_iᵀΣw_i, C and G are those of Σ^½ w and
        Σ^½ θ, the `directions` of the teacher are the whitened Σ^½ θ_p, of unit length, a polynomial teacher is one of
        the whitened coordinates x_l/√s_l, and `initial_weights` are w, not whitened; random neurons are isotropic in w,
        with n_i = σ0².
    student : {"homogeneous", "committee", "spherical", "stiefel"} or Student
        A `Student` is any two-layer network. Of those with a name "homogeneous" is the student above, its second layer
        tied to |w_i|²; "committee" is f(x) = Σ_i σ(w_i·x); "spherical" the mean f(x) = (1/m) Σ_i σ(w_i·x) with
        |w_i| = 1, of which a_p are mixture weights; "stiefel" the student above with neurons that stay orthogonal and
        of one length σ0, m ≤ d. `dynamics.solve_problem` says which function solves which.
    teacher_activation : optional
        Link of the teacher's units that have none, by default `activation`; for the spherical student and a `Student`.
    order : int, optional
        Order of the Hermite truncation for links that are not polynomials; afterwards the order of the expansion.
    objective : {"squared", "correlation", "logistic", "hinge", "huber", "exponential", "softmax"} or ℓ
        What is descended, the mean of ℓ(f, y): ½(f − y)², or −y f, also for one spherical neuron and one direction.
        The others are for a `Student`, see docs/classes.md: a function ℓ(f, y) of arrays is tabulated for y = ±1 on
        |f| ≤ 32 and goes on as a line, and "softmax" has an output for each class.
    labels : {"value", "sign", "bernoulli", "softmax", "cluster"}, optional
        y of a sample for a `Student`: f*(x), the default; the sign of f*(x) − `threshold`; 1 with the probability
        sigmoid(f*(x) − `threshold`), else −1; class k with the probability softmax_k of the units a_k σ_k; or the label
        of its cluster, the default where a `Mixture` has labels.
    flip : float, default 0.0
        Probability, up to ½, that a class is replaced by another one.
    threshold : float, default 0.0
        Value of f* at which labels "sign" and "bernoulli" are even, dimensionless.
    smoothing : float, default 0.0
        λ ≥ 0: the correlation is averaged over neurons (w + λz)/√(1 + λ²), z uniform on the unit sphere orthogonal to
        w. Dimensionless.
    learned_definition : {"degrees 3 and above", "all degrees"}
        Which degrees of the link count in the learned mass of a direction, Σ_i n_i g(C_ip)/g(1). Files without this
        attribute have "all degrees", and so has the student "stiefel"; networks have no learned mass.
    emergence_level : float, optional
        Squared overlap C², above 0 and below 1, at which a neuron has found a direction; all times of emergence are of
        it. By default that of the teacher: ½, or 0.6 over the number of axes of a product.

    Raises
    ------
    TypeError, ValueError
        One sentence: what must hold, what was given.

    Examples
    --------
    >>> problem = Problem(activation="he4", teacher=Teacher.power_law(2, 1.0), width=3, dimension=16)
    >>> problem.information_exponent
    4
    >>> problem.start().teacher_overlap.shape
    (3, 2)
    """

    activation: HermiteExpansion = None  # type: ignore[assignment]  # set from the student where it has one
    teacher: Teacher = None  # type: ignore[assignment]  # set from a mixture with labels where it is absent
    width: int = None  # type: ignore[assignment]
    dimension: int
    initial_norm: float = None  # type: ignore[assignment]
    seed: int = 0
    initial_weights: Array | None = field(default=None, repr=False)
    initial_overlaps: tuple[Array, Array, Array] | None = field(default=None, repr=False)
    label_noise: float = 0.0
    inputs: Inputs | Mixture | None = None
    student: Literal["homogeneous", "committee", "spherical", "stiefel"] | Student = "homogeneous"
    teacher_activation: HermiteExpansion | None = field(default=None, repr=False)
    order: int | None = None
    objective: Objective = "squared"
    labels: str = None  # type: ignore[assignment]  # set from the inputs
    flip: float = 0.0
    threshold: float = 0.0
    smoothing: float = 0.0
    learned_definition: Literal["degrees 3 and above", "all degrees"] = field(default="degrees 3 and above", repr=False)
    emergence_level: float = field(default=None, repr=False)  # type: ignore[assignment]  # set from the teacher

    if TYPE_CHECKING:
        # Types that callers may pass; those of the attributes are above.
        def __init__(
            self,
            *,
            activation: object = None,
            teacher: Teacher | None = None,
            width: int | None = None,
            dimension: float,
            initial_norm: float | None = None,
            seed: int = 0,
            initial_weights: ArrayLike | None = None,
            initial_overlaps: tuple[ArrayLike, ArrayLike, ArrayLike] | None = None,
            label_noise: float = 0.0,
            inputs: Inputs | Mixture | None = None,
            student: Literal["homogeneous", "committee", "spherical", "stiefel"] | Student = "homogeneous",
            teacher_activation: object = None,
            order: int | None = None,
            objective: str | OwnLoss | Callable[[Any, Any], Any] = "squared",
            labels: str | None = None,
            flip: float = 0.0,
            threshold: float = 0.0,
            smoothing: float = 0.0,
            learned_definition: str = "degrees 3 and above",
            emergence_level: float | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        teacher: object = self.teacher
        labels: object = self.labels
        mixture = self.mixture
        if teacher is None and labels in (None, CLUSTER) and mixture is not None and mixture.labels is not None:
            self._assign(teacher=Teacher(np.ones(mixture.span)))
        if not isinstance(self.teacher, Teacher):
            refuse(f"Argument `teacher` must be a Teacher, but is {shown(self.teacher)}.", TypeError)
        check_choice("learned_definition", self.learned_definition, DEFINITIONS)
        self._assign(emergence_level=_checked_level(self))
        _check_student(self)
        self._assign(objective=checked_objective(self.objective))
        self._assign(
            width=checked_integer(self.width, "width", minimum=1),
            dimension=checked_integer(self.dimension, "dimension", minimum=1),
            seed=checked_integer(self.seed, "seed", minimum=0),
        )
        noise = checked_number(self.label_noise, "label_noise", positive=False)
        self._assign(initial_norm=_checked_norm(self), label_noise=noise)
        span, d = self.teacher.span, self.dimension
        require(
            d >= span,
            f"Argument `dimension` must be at least {span}, the number of axes that the teacher spans, but is {d}.",
        )
        self._assign(activation=checked_link(self.activation, "activation", self.order))
        if self.teacher_activation is not None:
            self._assign(teacher_activation=_checked_teacher_link(self))
        for name, link in (("activation", self.activation), ("teacher_activation", self.teacher_link)):
            j = int(np.argmax(np.abs(link.coefficients)))
            largest = link.coefficients[j]
            require(
                abs(largest) <= LARGEST_COEFFICIENT,
                f"Argument `{name}` must have Hermite coefficients of at most {LARGEST_COEFFICIENT:g}, but c_{j} is "
                f"{largest:g}.",
            )
        labels, flip, threshold = check_labels(self)
        self._assign(labels=labels, flip=flip, threshold=threshold)
        _check_layer_wise(self)
        self._assign(smoothing=_checked_smoothing(self), order=self.activation.order)
        _check_one_start(self)
        _check_inputs(self)
        check_classes(self)
        if isinstance(self.student, Student):
            self.student.start_of_outputs(self.num_outputs)
        fits = self.kind != FRAME or self.width <= d
        require(
            fits, f"Argument `width` must be at most {d}, the dimension, for the stiefel student, but is {self.width}."
        )
        if self.initial_weights is not None:
            self._assign(initial_weights=_checked_weights(self))
        if self.initial_overlaps is not None:
            C, G, n = checked_overlaps(self.initial_overlaps, self.teacher, self.width, d)
            self._assign(initial_overlaps=(C, G, n))
            _check_geometry(self, "initial_overlaps", n, lambda: G * np.sqrt(n) * np.sqrt(n)[:, None])

    def _assign(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    # --- derived quantities -------------------------------------------------------------------------------

    @property
    def kind(self) -> str:
        """Name of the student; "network" for a `Student`."""
        return NETWORK if isinstance(self.student, Student) else self.student

    @property
    def mixture(self) -> Mixture | None:
        """The inputs if they are a mixture of clusters."""
        return self.inputs if isinstance(self.inputs, Mixture) else None

    @property
    def covariance(self) -> Inputs | None:
        """The inputs if they have a covariance."""
        return self.inputs if isinstance(self.inputs, Inputs) else None

    @property
    def num_outputs(self) -> int:
        """Number of outputs: that of classes for the objective "softmax", else 1."""
        return number_of_classes(self)

    @property
    def teacher_link(self) -> HermiteExpansion:
        """Link of the teacher: `teacher_activation`, or `activation` where none is given."""
        return self.activation if self.teacher_activation is None else self.teacher_activation

    @cached_property
    def learned_part(self) -> LearnedPart:
        """The part of the link that counts in the learned mass."""
        return LearnedPart.of(self.activation, ALL_DEGREES if self.kind == FRAME else self.learned_definition)

    @property
    def information_exponent(self) -> int:
        """Information exponent k of the link: smallest j ≥ 1 with c_j ≠ 0."""
        return self.activation.information_exponent

    @property
    def num_directions(self) -> int:
        """Number of teacher directions P; for a `Student`, of the axes that the teacher spans."""
        return self.teacher.span if self.kind == NETWORK else self.teacher.num_directions

    @property
    def declared_fields(self) -> dict[str, object]:
        """Values of the fields of `DECLARED_FIELDS` that differ from the default, which all answers take."""
        fields = {
            "objective": self.objective, "smoothing": self.smoothing, "inputs": self.inputs, "labels": self.labels,
            "flip": self.flip, "threshold": self.threshold,
        }  # fmt: skip
        values = {name: value for name, value in fields.items() if value != DECLARED_FIELDS[name]}
        return {MIXTURE if isinstance(value, Mixture) else name: value for name, value in values.items()}

    @property
    def start_is_random(self) -> bool:
        """Whether the start is drawn from the seed rather than given."""
        return self.initial_weights is None and self.initial_overlaps is None

    def start(self) -> OverlapStart:
        """Return the start in overlap space: C (m, P), G (m, m) and n (m,), dimensionless."""
        if self.initial_overlaps is not None:
            return OverlapStart(*self.initial_overlaps)
        teacher = Teacher(np.ones(self.teacher.span)) if self.kind == NETWORK else self.teacher
        return overlaps_from_weights(self.reduced_weights(), teacher)

    def network_start(self) -> NetworkStart:
        """Return the start of a `Student`: v (m,), b (m,) and weights (m, D) on the teacher's axes and further ones.

        Under softmax v is (C, m).

        ValueError is raised if the student is one of those with a name.
        """
        if not isinstance(self.student, Student):
            refuse(f"Argument `student` must be a Student to have layers of its own, but is {self.student!r}.")
        biases = self.student.start_of_biases(np.random.default_rng([self.seed, BIASES_DRAWN]))
        return NetworkStart(self.student.start_of_outputs(self.num_outputs), biases, self.reduced_weights())

    def phases(self) -> tuple[Problem, ...]:
        """Return the problem of each phase of training, with constant rates: itself alone, or two if layer-wise."""
        students = self.student.phases() if isinstance(self.student, Student) else ()
        return tuple(replace(self, student=student) for student in students) if len(students) > 1 else (self,)

    def input_axes(self) -> Axes | None:
        """Return the axes of the inputs that `reduced_weights` has; None for isotropic inputs."""
        inputs = self.covariance
        return None if inputs is None else inputs.axes(self.dimension, self.teacher.span, self.width)

    def reduced_weights(self) -> Array:
        """Return the starting weights without their trailing zero columns, shape (m, D), D ≤ min(d, m + r).

        Online SGD and the flow started from [these | 0] in R^d have the distribution of any rotation of them that keeps
        the teacher fixed. With `inputs` they are whitened, Σ^½ w, on the axes that `input_axes` keeps.
        """
        few = self.width * (self.teacher.span + self.width) <= FEW_NUMBERS
        return self._few_weights.copy() if few else self._drawn_weights()

    @cached_property
    def _few_weights(self) -> Array:
        return self._drawn_weights()

    def _drawn_weights(self) -> Array:
        """Return the reduced starting weights (m, D): given, from given overlaps, or drawn from the seed."""
        span, m, norm, rng = self.teacher.span, self.width, self.initial_norm, np.random.default_rng(self.seed)
        axes, weights = self.input_axes(), self.initial_weights
        if weights is not None:
            inputs = self.covariance
            return weights if axes is None or inputs is None else whitened(weights, inputs, axes, span)
        if self.initial_overlaps is not None:
            return weights_from_overlaps(OverlapStart(*self.initial_overlaps), self.teacher)
        paired = isinstance(self.student, Student) and self.student.is_paired
        count = m // 2 if paired else m
        if axes is not None:
            drawn = random_whitened(rng, axes, span, m, norm)[:count]
        else:
            drawn = random_weights(rng, count, span, self.dimension, norm)
        if self.kind == FRAME:
            return orthogonal_rows(drawn, norm)
        return np.tile(drawn, (2, 1)) if paired else drawn

    # --- to and from a dataset ----------------------------------------------------------------------------

    def parameters(self) -> dict[str, object]:
        """Return the scalar parameters as a JSON-ready dict; arrays travel as dataset variables."""
        student, teacher = self.student, self.teacher
        parameters: dict[str, object] = {
            "activation": stored_link(self.activation),
            "beta": teacher.beta,
            "num_directions": self.num_directions,
            "width": self.width,
            "dimension": self.dimension,
            "initial_norm": self.initial_norm,
            "seed": self.seed,
            "label_noise": self.label_noise,
            "student": student.parameters() if isinstance(student, Student) else student,
            "objective": stored_objective(self.objective),
            "smoothing": self.smoothing,
            "inputs": None if self.inputs is None else self.inputs.parameters(),
        }
        # Files of problems without classes are those of earlier versions.
        parameters |= {} if self.labels == VALUE else {"labels": self.labels}
        parameters |= {} if self.flip == 0.0 else {"flip": self.flip}
        parameters |= {} if self.threshold == 0.0 else {"threshold": self.threshold}
        if isinstance(student, Student):
            parameters["teacher"] = {
                "polynomial": None if teacher.target is None else teacher.target.text,
                "links": None if teacher.links is None else [stored_link(link) for link in teacher.links],
            }
        else:
            parameters["learned_definition"] = self.learned_definition
        if self.emergence_level != teacher.emergence_level:
            parameters["emergence_level"] = self.emergence_level
        if self.kind in (NETWORK, SPHERICAL) and self.teacher_activation is not None:
            parameters["teacher_activation"] = stored_link(self.teacher_activation)
        return parameters

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Array]]:
        """Return the array-valued inputs as {variable name: (dims, values)}."""
        arrays: dict[str, tuple[tuple[str, ...], Array]] = {}
        teacher = self.teacher
        name, along = ("unit", "unit") if self.kind == NETWORK else ("teacher", "direction")
        if not teacher.is_polynomial:
            arrays[f"{name}_coefficient"] = ((along,), teacher.coefficients)
        if teacher.directions is not None:
            arrays[f"{name}_direction"] = ((along, "teacher_axis"), teacher.directions)
        if teacher.biases is not None:
            arrays["unit_bias"] = (("unit",), teacher.biases)
        if isinstance(self.student, Student):
            for variable, values in self.student.arrays().items():
                arrays[variable] = (("neuron",) if values.ndim == 1 else ("class", "neuron"), values)
        if self.inputs is not None:
            arrays |= self.inputs.arrays()
        if isinstance(self.objective, OwnLoss):
            arrays["loss_piece"] = (("label", "piece", "power"), self.objective.table)
        if self.initial_weights is not None:
            arrays["initial_weight"] = (("neuron", "axis"), self.initial_weights)
        if self.initial_overlaps is not None:
            dims = (("neuron", "direction"), ("neuron", "neuron_2"), ("neuron",))
            arrays |= dict(zip(STORED_OVERLAPS, zip(dims, self.initial_overlaps, strict=True), strict=True))
        return arrays

    @classmethod
    def from_dataset(cls, dataset: xr.Dataset) -> Problem:
        """Return the problem that a result answers; ValueError if the dataset holds none of this program.

        A link given as an opaque callable comes back as its truncated Hermite series, the only part of it that a file
        can hold.
        """
        return cls(**stored_arguments(dataset))

    def _repr_html_(self) -> str:
        learn = f"{self.width} neurons learn {self.num_directions} directions of R<sup>d</sup>, d = {self.dimension}"
        rows = {"student": f"f(x) = {STUDENTS[self.kind][1]}", "link σ": link_in_a_line(self.activation)}
        if isinstance(self.student, Student):
            rows |= layers_in_html(self.student)
        teacher = teacher_formulas(self.teacher)
        rows["teacher"] = f"f*(x) = {teacher['f*(x)']}"
        if not self.teacher.is_polynomial:
            rows["teacher"] += f"<br/>{teacher['coefficients']}<br/>directions {teacher['directions']}"
        if self.teacher_activation is not None:
            rows["link of the teacher"] = link_in_a_line(self.teacher_activation)
        rows["start"] = f"given {'overlaps' if self.initial_weights is None else 'weights'}"
        if self.start_is_random:
            rows["start"] = f"random, |w<sub>i</sub>| = {self.initial_norm:g}, seed {self.seed}"
        rows["label noise"] = f"τ = {self.label_noise:g}"
        if self.inputs is not None:
            rows["inputs"] = clean(repr(self.inputs))
        if self.objective != SQUARED:
            smoothed = f", smoothing λ = {self.smoothing:g}" if self.kind == SPHERICAL else ""
            rows["objective"] = f"{clean(str(self.objective))}{smoothed}"
        if self.labels != VALUE:
            rows["labels"] = f"{self.labels}, flipped with probability {self.flip:g}"
        return table_of_pairs(f"<b>Problem</b>: {learn}", rows)

    def _identity(self) -> tuple[object, ...]:
        """Return what equal problems share, by value: 0.8 h4 equals 4/5 h4."""
        links = ("activation", "teacher_activation")
        scalars = {name: value for name, value in self.parameters().items() if name not in links}
        return (
            json.dumps(scalars, sort_keys=True),
            *((link.coefficients.tobytes(), link.is_polynomial) for link in (self.activation, self.teacher_link)),
            self.teacher,
            *((name, array.shape, (array + 0.0).tobytes()) for name, (_, array) in self.arrays().items()),
        )


# --- checks of several arguments together -----------------------------------------------------------------------------


def _check_layer_wise(problem: Problem) -> None:
    """Raise ValueError for a student whose layers move one after another, unless means have closed forms."""
    switch = problem.student.layer_wise if isinstance(problem.student, Student) else None
    require(
        switch is None or not needs_points(problem),
        "Argument `layer_wise` must be None unless the loss is squared, labels are values and inputs are no mixture, "
        f"but is {switch}.",
    )


def _check_student(problem: Problem) -> None:
    """Refuse arguments that a `Student` sets itself; for a named student refuse missing ones and an unfit teacher."""
    student, teacher = problem.student, problem.teacher
    if isinstance(student, Student):
        theirs = {"activation": student.activation, "width": student.width, "order": student.order}
        asked = {"activation": problem.activation, "width": problem.width, "order": problem.order}
        for name, value in asked.items():
            is_own = value is None or value == theirs[name]
            require(is_own, f"Argument `{name}` must be absent where `student` is a Student, but is {shown(value)}.")
        problem._assign(activation=student.activation, width=student.width, order=student.order)
        return
    check_choice("student", student, (HOMOGENEOUS, COMMITTEE, SPHERICAL, FRAME))
    for name, value in (("activation", problem.activation), ("width", problem.width)):
        require(
            value is not None,
            f"Argument `{name}` must be given for the {student} student, but is absent.",
            TypeError,
        )
    require(
        not teacher.is_polynomial,
        f"Argument `teacher` must have units, but is a polynomial, which the {student} student cannot learn; a "
        "`Student` can.",
    )
    for name, has_some in (("links", teacher.links is not None), ("biases", teacher.biases is not None)):
        require(
            not has_some,
            f"Argument `teacher` must have units without {name} of their own, but has some, which the {student} "
            "student cannot learn; a `Student` can.",
        )
    a = teacher.coefficients
    if (p := first_false(a >= 0)) is not None:
        refuse(
            f"Argument `teacher` must have positive coefficients, but entry {p + 1} of {a.size} is {a[p]}, which the "
            f"{student} student cannot learn; a `Student` can."
        )


def _checked_level(problem: Problem) -> float:
    """Return the squared overlap at which a direction emerges."""
    value: object = problem.emergence_level
    if value is None:
        return problem.teacher.emergence_level
    level = checked_number(value, "emergence_level", positive=True)
    require(level < 1.0, f"Argument `emergence_level` must be below 1, but is {level:g}.")
    return level


def _default_norm(problem: Problem) -> float:
    """Return the default |w_i| at the start; for a frame the network then has a mean square of order 1."""
    if problem.kind == FRAME:
        return float(float(problem.width) ** -0.25)
    return UNIT_NORM if problem.kind in (SPHERICAL, NETWORK) else SMALL_NORM


def _checked_norm(problem: Problem) -> float:
    """Return the norm of the neurons at the start."""
    value: object = problem.initial_norm
    norm = _default_norm(problem) if value is None else checked_number(value, "initial_norm", positive=True)
    require(0 < norm * norm < np.inf, f"Argument `initial_norm` must have a square within float64, but is {norm}.")
    is_right = problem.kind != SPHERICAL or norm in (SMALL_NORM, UNIT_NORM)
    require(is_right, f"Argument `initial_norm` must be 1 for the spherical student, but is {norm}.")
    return UNIT_NORM if problem.kind == SPHERICAL else norm


def _checked_teacher_link(problem: Problem) -> HermiteExpansion:
    """Return the link of the teacher, expanded to the order of the problem."""
    kind, student_link, value = problem.kind, problem.activation, problem.teacher_activation
    require(
        not problem.teacher.is_polynomial,
        "Argument `teacher_activation` must be absent where the teacher is a polynomial, but is given.",
    )
    is_free = kind in (SPHERICAL, NETWORK)
    if is_free and isinstance(value, HermiteExpansion):
        return value
    link = checked_link(value, "teacher_activation", None if kind == NETWORK else problem.order)
    is_right = is_free or np.array_equal(link.coefficients, student_link.coefficients)
    require(
        is_right,
        f"Argument `teacher_activation` must equal `activation` for the {kind} student, but is {link.name} against "
        f"{student_link.name}.",
    )
    return link


def _checked_smoothing(problem: Problem) -> float:
    """Return the smoothing λ; the correlation is refused unless there are one spherical neuron and one direction."""
    objective, count = problem.objective, problem.teacher.num_directions
    size = checked_number(problem.smoothing, "smoothing", positive=False)
    if objective == SQUARED or problem.kind == NETWORK:
        require(size == 0.0, f"Argument `smoothing` must be 0 for the objective {objective!r}, but is {size}.")
        return size
    require(problem.width == 1, f"Argument `width` must be 1 for the objective {objective!r}, but is {problem.width}.")
    require(count == 1, f"Argument `teacher` must have one direction for the objective {objective!r}, but has {count}.")
    require(
        problem.dimension >= 2,
        f"Argument `dimension` must be at least 2 for the objective {objective!r}, but is {problem.dimension}.",
    )
    return size


def _check_one_start(problem: Problem) -> None:
    """Refuse two starts at once, and a norm or a seed that a given start makes useless."""
    weights, overlaps = problem.initial_weights, problem.initial_overlaps
    is_one = weights is None or overlaps is None
    require(is_one, "Argument `initial_overlaps` must be absent when `initial_weights` is given, but both are given.")
    require(
        problem.kind != NETWORK or overlaps is None,
        "Argument `initial_overlaps` must be absent where `student` is a Student; give `initial_weights`.",
    )
    require(
        problem.covariance is None or overlaps is None,
        "Argument `initial_overlaps` must be absent where `inputs` is given; give `initial_weights`.",
    )
    if problem.start_is_random:
        return
    start = "initial_weights" if overlaps is None else "initial_overlaps"
    # The seed of a network draws its biases too.
    usual_seed = problem.seed if problem.kind == NETWORK else 0
    for name, value, usual in (
        ("initial_norm", problem.initial_norm, _default_norm(problem)), ("seed", problem.seed, usual_seed)
    ):  # fmt: skip
        require(value == usual, f"Argument `{name}` must be absent when `{start}` is given, but is {value}.")


def _check_inputs(problem: Problem) -> None:
    """Refuse inputs that the student does not take, or of another dimension, or with too many axes to keep."""
    inputs, student = problem.inputs, problem.student
    if inputs is None:
        return
    if isinstance(inputs, Mixture):
        _check_mixture(problem, inputs)
        return
    if not isinstance(inputs, Inputs):
        refuse(
            f"Argument `inputs` must be an Inputs, a Mixture, or None for isotropic ones, but is {shown(inputs)}.",
            TypeError,
        )
    takes_them = problem.kind in (HOMOGENEOUS, NETWORK)
    require(takes_them, f"Argument `inputs` must be None for the {problem.kind} student, but is {inputs!r}.")
    is_free = not isinstance(student, Student) or student.first_layer == "free"
    require(is_free, f"Argument `inputs` must be None for neurons on the sphere, but is {inputs!r}.")
    inputs.check_dimension(problem.dimension)
    problem.input_axes()


def _check_mixture(problem: Problem, inputs: Mixture) -> None:
    """Refuse clusters for a student that does not take them, or with means off the teacher's axes."""
    require(
        problem.kind == NETWORK,
        f"Argument `inputs` must not be a Mixture for the {problem.kind} student, but is {inputs!r}; a `Student` "
        "learns from one.",
    )
    span = problem.teacher.span
    require(
        inputs.span <= span,
        f"Argument `inputs` must have means on the {span} axes of the teacher, whose `directions` may have further "
        f"columns, but has {inputs.span}.",
    )


def _checked_weights(problem: Problem) -> Array:
    """Return the given starting weights; without `inputs` those of a `Student` may leave out columns that are zero."""
    student, m, d, span = problem.student, problem.width, problem.dimension, problem.teacher.span
    rows = read_only(real_array(problem.initial_weights, "initial_weights"))
    if isinstance(student, Student) and problem.covariance is None:
        require(
            rows.ndim == 2 and len(rows) == m and span <= rows.shape[1] <= d,
            f"Argument `initial_weights` must have shape (width, dimension) = ({m}, {d}), or fewer columns, those that "
            f"are not zero, but at least the teacher's {span}, but has shape {rows.shape}.",
        )
    else:
        require(
            rows.shape == (m, d),
            f"Argument `initial_weights` must have shape (width, dimension) = ({m}, {d}), but has shape {rows.shape}.",
        )
    check_rows("initial_weights", rows)
    _check_geometry(problem, "initial_weights", np.sum(rows**2, axis=1), lambda: rows @ rows.T)
    are_pairs = isinstance(student, Student) and student.is_paired
    are_right = not are_pairs or np.array_equal(rows[: m // 2], rows[m // 2 :])
    require(
        are_right,
        "Argument `initial_weights` must have equal halves where `initial_second_layer` is 'pairs', but has not.",
    )
    return rows


def _check_geometry(problem: Problem, name: str, squared_lengths: Array, gram_of: Callable[[], Array]) -> None:
    """Refuse spherical neurons without length 1, and stiefel neurons that are not orthogonal and of one length."""
    has_length_one = np.abs(squared_lengths - 1.0) <= UNIT_LENGTH_TOLERANCE
    if problem.kind == SPHERICAL and (i := first_false(has_length_one)) is not None:
        refuse(
            f"Argument `{name}` must have neurons of length 1 for the spherical student, but neuron {i + 1} of "
            f"{squared_lengths.size} has length {np.sqrt(squared_lengths[i]):.6g}."
        )
    if problem.kind == FRAME:
        gram = gram_of()
        off = np.abs(gram - gram[0, 0] * np.eye(len(gram))).max() / gram[0, 0]
        require(
            off <= UNIT_LENGTH_TOLERANCE,
            f"Argument `{name}` must have orthogonal neurons of one length for the stiefel student, but an inner "
            f"product is off by {off:.3g} of the squared length.",
        )


# --- what theories and engines ask of a problem -----------------------------------------------------------------------


def check_problem(problem: object, student: str = HOMOGENEOUS, fields: Collection[str] = ()) -> None:
    """Raise TypeError or ValueError unless `problem` is a Problem with the student that a theory is about.

    `fields` are those of `DECLARED_FIELDS` that the theory takes; any other must have its default.
    """
    if not isinstance(problem, Problem):
        refuse(f"Argument `problem` must be a Problem, but is {type(problem).__name__}.", TypeError)
    check_fields(problem, fields, "here")
    if problem.kind != student:
        required, present = (
            "a Student" if kind == NETWORK else f"the {kind} student" for kind in (student, problem.kind)
        )
        refuse(
            f"Argument `problem` must have {required} here, but has {present}, whose overlaps "
            f"`dynamics.{STUDENTS[problem.kind][0]}` integrates."
        )


def check_fields(problem: Problem, fields: Collection[str], where: str) -> None:
    """Raise ValueError on the first of `DECLARED_FIELDS` that differs from its default and is not among `fields`."""
    for declared, value in problem.declared_fields.items():
        name = "inputs" if declared == MIXTURE else declared
        require(
            declared in fields,
            f"Argument `problem` must have `{name}` {DECLARED_FIELDS[name]!r} {where}, but has {value!r}, which is "
            "not known there.",
        )


def flow_numbers_of(problem: Problem, *, keep: str, times: int) -> int:
    """Return an estimate of the count of numbers that the coupled flow of a problem holds."""
    axes = problem.input_axes()
    count = None if axes is None else axes.places.size
    return flow_numbers(problem.width, problem.num_directions, full=keep == "full", times=times, axes=count)


def check_flow_memory(problem: Problem, *, keep: str, times: int) -> None:
    """Raise ValueError about `width` if the coupled flow of a problem does not fit into memory."""
    check_memory("width", problem.width, flow_numbers_of(problem, keep=keep, times=times))


def is_correlation(problem: Problem) -> bool:
    """Return whether one spherical neuron descends its correlation, not the squared error."""
    return problem.objective == CORRELATION and problem.kind == SPHERICAL


def is_homogeneous(problem: object) -> bool:
    """Return whether a problem has the student whose second layer is |w_i|², with norms that grow."""
    return isinstance(problem, Problem) and problem.kind == HOMOGENEOUS


def is_spherical(problem: object) -> bool:
    """Return whether a problem has the student that is the mean over neurons of length 1."""
    return isinstance(problem, Problem) and problem.kind == SPHERICAL


def is_frame(problem: object) -> bool:
    """Return whether a problem has neurons that stay orthogonal and of one length."""
    return isinstance(problem, Problem) and problem.kind == FRAME


def is_network(problem: object) -> bool:
    """Return whether the student of a problem is a `Student`, which has its own layers."""
    return isinstance(problem, Problem) and problem.kind == NETWORK


def decouples(problem: Problem) -> bool:
    """Return whether each direction is learned by one neuron, independently of all others: tied student and k ≥ 3."""
    return is_homogeneous(problem) and problem.information_exponent >= 3


#: Axes of a sweep that set something of the problem under another name than it is stored by.
_SET_BY_AXES = ("k", "order", "teacher", "teacher_activation", "initial_weights", "initial_overlaps", "alpha",
                 "emergence_level", "labels", "flip", "threshold")  # fmt: skip


def stored_arguments(dataset: xr.Dataset) -> JsonObject:
    """Return the arguments of the `Problem` that a result answers.

    A sweep must be reduced to one point; values of its axes there replace the parameters that all points share.
    ValueError is raised if the dataset holds no problem of this program, or more than one.
    """
    try:
        axes = json.loads(dataset.attrs["sweep"])["axes"] if "sweep" in dataset.attrs else ()
        stored = json.loads(dataset.attrs["parameters"])["problem"]
        set_here = [name for name in axes if name in stored or name in _SET_BY_AXES]
        several = [name for name in set_here if name not in dataset.coords or dataset[name].ndim > 0]
        if not several:
            _set_by(set_here, stored, dataset)
            return _arguments(stored, dataset)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):  # the last of endless JSON
        refuse("Argument `dataset` must hold `parameters` with a problem and `teacher_coefficient`, but does not.")
    names = ", ".join(f"{name}=…" for name in several)
    return refuse(f"Argument `dataset` must be one point of its sweep, as found.sel({names}) is, but is not.")


def _set_by(axes: list[str], stored: JsonObject, dataset: xr.Dataset) -> None:
    """Replace parameters of a stored problem by the values of the axes of a sweep, which is reduced to one point."""
    for name in sorted(axes, key=lambda axis: axis == "order"):  # the link is set first, then its order
        value = dataset[name].item()
        if name in ("activation", "teacher_activation"):
            stored[name] = {"text": value, "order": None}
        elif name == "k":
            stored["activation"] = {"text": f"he{value}", "order": None}
        elif name == "order":
            stored["activation"]["order"] = None if value == "None" else int(value)
        elif name == "teacher":
            stored["beta"] = None
        elif name == "alpha":
            stored["inputs"] = {"alpha": value}
        elif name in stored or name in ("emergence_level", "labels", "flip", "threshold"):  # stored where unusual
            stored[name] = value


def _arguments(stored: JsonObject, dataset: xr.Dataset) -> JsonObject:
    """Return the arguments of `Problem` from stored parameters and the variables of a dataset."""

    def array(name: str) -> Array | None:
        return np.asarray(dataset[name].values) if name in dataset else None

    link, weights = stored["activation"], array("initial_weight")
    # Fields that old files lack have their defaults.
    names = ("dimension", "seed", "label_noise", "smoothing", "emergence_level", "labels", "flip", "threshold")
    arguments: dict[str, object] = {name: stored[name] for name in names if name in stored} | {
        "initial_weights": weights,
        "inputs": _inputs(stored.get("inputs"), array),
        "objective": read_objective(stored.get("objective", SQUARED), array("loss_piece")),
        "teacher_activation": _link(stored["teacher_activation"]) if "teacher_activation" in stored else None,
    }
    if isinstance(stored["student"], dict):
        # An axis of a sweep may have set the student's link or width.
        student = stored["student"] | {"activation": link, "width": stored["width"]}
        return arguments | {
            "student": Student.of(student, _second_layer(array), array("initial_bias")),
            "teacher": _teacher(stored, stored["teacher"], "unit", array),
            "initial_norm": stored["initial_norm"] if weights is None else None,
        }
    overlaps = tuple(map(array, STORED_OVERLAPS))
    return arguments | {
        "student": stored["student"],
        "teacher": _teacher(stored, {}, "teacher", array),
        "activation": read_link(link),
        "order": link["order"],
        "width": stored["width"],
        "initial_norm": stored["initial_norm"],
        "initial_overlaps": None if overlaps[0] is None else overlaps,
        "learned_definition": stored.get("learned_definition", ALL_DEGREES),
    }


def _second_layer(array: Callable[[str], Array | None]) -> Array | None:
    """Return the second layer of a file, for one output or for several."""
    layer = array("initial_second_layer")
    return array("initial_output_layer") if layer is None else layer


def _inputs(stored: JsonObject | None, array: Callable[[str], Array | None]) -> Inputs | Mixture | None:
    """Return the inputs of a file."""
    if stored is None or "snr" not in stored:
        return Inputs.of(stored, array("input_eigenvalue"), array("input_multiplicity"))
    means, labels, weights = array("cluster_mean"), array("cluster_label"), array("cluster_weight")
    return Mixture(np.asarray(means), labels, weights, stored["snr"])


def _link(stored: JsonObject) -> HermiteExpansion:
    return expand(read_link(stored), order=stored["order"])


def _teacher(stored: JsonObject, parts: JsonObject, name: str, array: Callable[[str], Array | None]) -> Teacher:
    """Return the stored teacher; `parts` are its polynomial or links for a `Student`, its arrays begin with `name`."""
    if parts.get("polynomial") is not None:
        return Teacher.polynomial(parts["polynomial"])
    coefficients = np.asarray(array(f"{name}_coefficient"))
    if stored["beta"] is not None:
        return Teacher.power_law(stored["num_directions"], stored["beta"])
    # A sweep stores arrays as long as the longest of any point, with NaN after the values of the others.
    is_stored, directions = ~np.isnan(coefficients), array(f"{name}_direction")
    if directions is not None:
        axes = ~np.isnan(directions[is_stored]).any(axis=0)
        directions = directions[is_stored][:, axes] if axes.any() else None
    links = None if parts.get("links") is None else [_link(link) for link in parts["links"]]
    return Teacher(coefficients[is_stored], directions=directions, links=links, biases=array("unit_bias"))
