"""`Problem`: what is asked, one frozen, picklable value that every solver, prediction and experiment reads.

Light to import: numpy and the Hermite expansion, without compiler, dataset library or solver.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dynamics.problem.checks import check_choice, checked_integer, checked_link, checked_number
from dynamics.problem.emergence import ALL_DEGREES, DEFINITIONS, LearnedPart
from dynamics.problem.inputs import Axes, Inputs, random_whitened, whitened
from dynamics.problem.network_start import NetworkStart, network_start
from dynamics.problem.problem_checks import (
    DECLARED_FIELDS,
    FRAME,
    NETWORK,
    STUDENTS,
    check_frame_width,
    check_inputs,
    check_named_student,
    check_one_start,
    check_same_as,
    check_sizes,
    checked_given_overlaps,
    checked_given_weights,
    checked_norm,
    checked_objective,
    checked_teacher_link,
    kind_of,
)
from dynamics.problem.start import (
    OverlapStart,
    drawn_weights,
    orthogonal_rows,
    overlaps_from_weights,
    weights_from_overlaps,
)
from dynamics.problem.stored_problem import stored_arguments, stored_arrays, stored_parameters
from dynamics.problem.student import Student
from dynamics.problem.teacher import Teacher
from hermite.text.messages import shown

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from hermite import HermiteExpansion
    from hermite.arrays import Array


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    r"""Teacher, student, start and dimension of one learning problem.

    .. math:: f(x) = \sum_{i=1}^m n_i\, \sigma(u_i \cdot x), \quad n_i = |w_i|^2, \; u_i = w_i/|w_i|,
       \qquad f^*(x) = \sum_p a_p\, \sigma(\theta_p\cdot x), \quad x \sim N(0, I_d)

    Parameters
    ----------
    activation : str, dict, sympy expression, callable or HermiteExpansion
        Link σ, anything that `hermite.expand` takes; absent where `student` is a `Student`, which has one.
    teacher : Teacher
        Coefficients a_p and directions θ_p; the teacher spans the first axes of R^d.
    width : int
        Number of student neurons m ≥ 1; absent where `student` is a `Student`, which has one.
    dimension : int
        Input dimension d, at least the number of axes that the teacher spans; also a float without fraction, as 1e6.
    initial_norm : float, optional
        σ0 = |w_i(0)| > 0, so that n_i(0) = σ0²; neurons start uniformly on that sphere. Dimensionless. By default 1e-2,
        1 for the spherical student and for a `Student`, and m^(−1/4) for the student "stiefel".
    seed : int, default 0
        Draws the start alone, never samples.
    initial_weights : array_like, shape (m, d), optional
        The start, given as weights w_i in R^d.
    initial_overlaps : tuple (C, G, n), optional
        The start, given as C_ip = u_i·θ_p (m, P), G_ij = u_i·u_j (m, m) and n_i = |w_i|² (m,). At most one of
        `initial_weights`, `initial_overlaps` and (`initial_norm`, `seed`) describes the start. The spherical student
        has |w_i| = 1: its `initial_norm` is 1, given weights have unit rows and given n_i are 1. Given neurons of the
        student "stiefel" are orthogonal and of one length.
    label_noise : float, default 0.0
        Standard deviation τ of Gaussian noise on the labels; seen by SGD only, the population flow does not change.
    inputs : Inputs, optional
        Covariance Σ of the inputs, for the homogeneous student; by default the identity. Then n_i = w_iᵀΣw_i, C and G
        are those of Σ^½ w and Σ^½ θ, the θ_p of the teacher (and its `directions`) are the whitened Σ^½ θ_p, of unit
        length, and `initial_weights` are w, not whitened; random neurons are isotropic in w, with n_i = σ0².
    student : {"homogeneous", "committee", "spherical", "stiefel"} or Student
        A `Student` is any two-layer network, for `dynamics.solve_network`. Of those with a name "homogeneous" is the
        student above, with the second layer tied to |w_i|²; "committee" is f(x) = Σ_i σ(w_i·x), second layer fixed to 1
        and norms free, for `dynamics.solve_committee`; "spherical" is the mean f(x) = (1/m) Σ_i σ(w_i·x) with
        |w_i| = 1, of which a_p are mixture weights, for `dynamics.solve_mean_field`, which does not use `width`, and
        `dynamics.solve_spherical`, which does; "stiefel" is the student above with neurons that stay orthogonal and of
        one length σ0, m ≤ d, for `dynamics.solve_quadratic`.
    teacher_activation : optional
        Link of the teacher's units that have none, by default `activation`. The spherical student and a `Student` may
        learn another link than their own; the other two require it to equal `activation`.
    order : int, optional
        Order of the Hermite truncation for links that are not polynomials; afterwards the order of the expansion.
    objective : {"squared", "correlation"}
        What is descended: ½ E(f − f*)², or −E[f* σ(w·x)], for one spherical neuron and one direction, by
        `dynamics.solve_correlation`.
    smoothing : float, default 0.0
        λ ≥ 0: the correlation is averaged over neurons (w + λz)/√(1 + λ²), z uniform on the unit sphere orthogonal to
        w. Dimensionless.
    learned_definition : {"degrees 3 and above", "all degrees"}
        Which degrees of the link count in the learned mass of a direction, Σ_i n_i g(C_ip)/g(1). Files without this
        attribute have "all degrees". The student "stiefel", whose link is h_2, always counts all; networks have no
        learned mass.

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
    teacher: Teacher
    width: int = None  # type: ignore[assignment]
    dimension: int
    initial_norm: float = None  # type: ignore[assignment]
    seed: int = 0
    initial_weights: Array | None = field(default=None, repr=False)
    initial_overlaps: tuple[Array, Array, Array] | None = field(default=None, repr=False)
    label_noise: float = 0.0
    inputs: Inputs | None = None
    student: Literal["homogeneous", "committee", "spherical", "stiefel"] | Student = "homogeneous"
    teacher_activation: HermiteExpansion | None = field(default=None, repr=False)
    order: int | None = None
    objective: Literal["squared", "correlation"] = "squared"
    smoothing: float = 0.0
    learned_definition: Literal["degrees 3 and above", "all degrees"] = field(default="degrees 3 and above", repr=False)

    if TYPE_CHECKING:
        # What callers may pass; the attributes above are what they find.
        def __init__(
            self,
            *,
            activation: object = None,
            teacher: Teacher,
            width: int | None = None,
            dimension: float,
            initial_norm: float | None = None,
            seed: int = 0,
            initial_weights: ArrayLike | None = None,
            initial_overlaps: tuple[ArrayLike, ArrayLike, ArrayLike] | None = None,
            label_noise: float = 0.0,
            inputs: Inputs | None = None,
            student: str | Student = "homogeneous",
            teacher_activation: object = None,
            order: int | None = None,
            objective: str = "squared",
            smoothing: float = 0.0,
            learned_definition: str = "degrees 3 and above",
        ) -> None: ...

    def __post_init__(self) -> None:
        def assign(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        teacher: object = self.teacher
        if not isinstance(teacher, Teacher):
            msg = f"Argument `teacher` must be a Teacher, but is {shown(teacher)}."
            raise TypeError(msg)
        check_choice("learned_definition", self.learned_definition, DEFINITIONS)
        student = self.student
        if isinstance(student, Student):
            check_same_as(student, activation=self.activation, width=self.width, order=self.order)
            for name in ("activation", "width", "order"):
                assign(name, getattr(student, name))
        else:
            check_choice("student", student, tuple(STUDENTS))
            check_named_student(student, teacher, activation=self.activation, width=self.width)
        assign("width", checked_integer(self.width, "width", minimum=1))
        assign("dimension", checked_integer(self.dimension, "dimension", minimum=1))
        assign("seed", checked_integer(self.seed, "seed", minimum=0))
        assign("initial_norm", checked_norm(self.initial_norm, self.kind, self.width))
        assign("label_noise", checked_number(self.label_noise, "label_noise", positive=False))
        if self.dimension < teacher.span:
            msg = (
                f"Argument `dimension` must be at least {teacher.span}, the number of axes that the teacher "
                f"spans, but is {self.dimension}."
            )
            raise ValueError(msg)
        link = checked_link(self.activation, "activation", self.order)
        assign("activation", link)
        if self.teacher_activation is not None:
            asked = (self.kind, teacher, link, self.order)
            assign("teacher_activation", checked_teacher_link(self.teacher_activation, *asked))
        check_sizes(activation=link, teacher_activation=self.teacher_link)
        sizes = (teacher, self.width, self.dimension)
        assign("smoothing", checked_objective(self.objective, self.smoothing, self.kind, *sizes))
        assign("order", link.order)
        starts = (self.initial_weights, self.initial_overlaps, self.initial_norm, self.seed)
        check_one_start(self.kind, self.width, *starts)
        check_inputs(self.inputs, self.kind, self.initial_overlaps, *sizes)
        if self.kind == FRAME:
            check_frame_width(self.width, self.dimension)
        if self.initial_weights is not None:
            assign("initial_weights", checked_given_weights(self.initial_weights, student, *sizes))
        if self.initial_overlaps is not None:
            assign("initial_overlaps", checked_given_overlaps(self.initial_overlaps, self.kind, *sizes))

    # --- derived quantities -------------------------------------------------------------------------------

    @property
    def kind(self) -> str:
        """Name of the student; "network" for a `Student`."""
        return kind_of(self.student)

    @property
    def teacher_link(self) -> HermiteExpansion:
        """Link of the teacher: `teacher_activation`, or `activation` where none is given."""
        return self.activation if self.teacher_activation is None else self.teacher_activation

    @cached_property
    def learned_part(self) -> LearnedPart:
        """The part of the link that counts in the learned mass, by `learned_definition`."""
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
        """The fields of `DECLARED_FIELDS` that have another value than all answers take."""
        return {name: found for name, usual in DECLARED_FIELDS.items() if (found := getattr(self, name)) != usual}

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

        Raises
        ------
        ValueError
            If the student is one of those with a name.
        """
        if not isinstance(self.student, Student):
            msg = f"Argument `student` must be a Student to have layers of its own, but is {self.student!r}."
            raise ValueError(msg)
        return network_start(self.student, self.reduced_weights(), self.seed)

    def input_axes(self) -> Axes | None:
        """Return the axes of the inputs that `reduced_weights` has; None for isotropic inputs."""
        if self.inputs is None:
            return None
        return self.inputs.axes(self.dimension, self.teacher.span, self.width)

    def reduced_weights(self) -> Array:
        """Return the starting weights without their trailing zero columns, shape (m, D), D ≤ min(d, m + r).

        Online SGD and the flow started from [these | 0] in R^d have the distribution of any rotation of them that keeps
        the teacher fixed, so every engine starts from this one matrix. With `inputs` they are the whitened weights
        Σ^½ w, on the axes that `input_axes` keeps.
        """
        if (axes := self.input_axes()) is not None and self.inputs is not None:
            if self.initial_weights is not None:
                return whitened(self.initial_weights, self.inputs, axes, self.teacher.span)
            generator = np.random.default_rng(self.seed)
            return random_whitened(generator, axes, self.teacher.span, self.width, self.initial_norm)
        if self.initial_weights is not None:
            return self.initial_weights
        if self.initial_overlaps is not None:
            return weights_from_overlaps(OverlapStart(*self.initial_overlaps), self.teacher)
        paired = isinstance(self.student, Student) and self.student.is_paired
        count = self.width // 2 if paired else self.width
        drawn = drawn_weights(self.seed, count, self.teacher.span, self.dimension, self.initial_norm)
        if self.kind == FRAME:
            return orthogonal_rows(drawn, self.initial_norm)
        return np.tile(drawn, (2, 1)) if paired else drawn

    # --- to and from a dataset ----------------------------------------------------------------------------

    def parameters(self) -> dict[str, Any]:
        """Return the scalar parameters as a JSON-ready dict; arrays travel as dataset variables."""
        return stored_parameters(self)

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Array]]:
        """Return the array-valued inputs as {variable name: (dims, values)}."""
        return stored_arrays(self)

    @classmethod
    def from_dataset(cls, dataset: Any) -> Problem:
        """Return the problem that a result answers.

        A link given as an opaque callable comes back as its truncated Hermite series, the only part of it that a file
        can hold.

        Raises
        ------
        ValueError
            If the dataset holds no problem of this program.
        """
        return cls(**stored_arguments(dataset))

    def _repr_html_(self) -> str:
        from dynamics.problem.as_html import problem_html

        return problem_html(self)

    def __eq__(self, other: object) -> bool:
        """Compare what is asked, not how it was written: 0.8 h4 equals 4/5 h4."""
        if not isinstance(other, Problem):
            return NotImplemented
        mine, theirs = self.arrays(), other.arrays()
        return (
            self._identity() == other._identity()
            and self.teacher == other.teacher
            and mine.keys() == theirs.keys()
            and all(np.array_equal(mine[name][1], theirs[name][1]) for name in mine)
        )

    def __hash__(self) -> int:
        return hash((self._identity(), self.teacher))

    def _identity(self) -> tuple[object, ...]:
        """Return scalars and links, by which problems are compared."""
        links = ("activation", "teacher_activation")
        scalars = {name: value for name, value in self.parameters().items() if name not in links}
        return (
            json.dumps(scalars, sort_keys=True),
            *((link.coefficients.tobytes(), link.is_polynomial) for link in (self.activation, self.teacher_link)),
        )
