"""The optimizers of SGD, as values: a step's use of the gradient g at the learning rate η.

The mean motion under each is in `dynamics.equations.optimizers`, the steps themselves in the engines of `sgd_check`;
both refuse, with the reason, the problems that they do not know. Settings out of range raise ValueError, values that
are no numbers TypeError.
"""

from __future__ import annotations

import ast
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar, Literal

from dynamics.problem.checks import check_switch, checked_integer, checked_number, checked_real, field_values, require
from hermite.text.messages import refuse, shown, suggestion
from hermite.text.signs import keyboard_text

if TYPE_CHECKING:
    from dynamics.problem.problem import Problem


@dataclass(frozen=True)
class Optimizer:
    """The rule of a step along a gradient; a plain one is w ← w − η g."""

    #: As commands spell it.
    name: ClassVar[str]
    #: Whether a step sees the coordinates of R^d, so that overlaps close for dense directions alone.
    sees_axes: ClassVar[bool] = False

    @property
    def is_plain(self) -> bool:
        """Whether a step is w ← w − η g."""
        return self == PLAIN

    @property
    def closes_in_the_limit(self) -> bool:
        """Whether the mean motion is known as d → ∞ alone."""
        return self.sees_axes or (isinstance(self, ZerothOrder) and self.smoothing > 0.0)

    def __str__(self) -> str:
        values = field_values(self)
        changed = [setting.name for setting in fields(self) if values[setting.name] != setting.default]
        return f"{type(self).__name__}({', '.join(f'{name}={values[name]!r}' for name in changed)})"


@dataclass(frozen=True)
class SGD(Optimizer):
    r"""Stochastic gradient descent with momentum β, as `torch.optim.SGD` has it, and with an average a of the weights.

    .. math:: u \leftarrow \beta u + (1 - \delta)\, g, \qquad w \leftarrow w - \eta u, \qquad
       a \leftarrow a + \alpha (w - a)

    u = g in the first step, a = w before it. With `nesterov` the second is w ← w − η (g + β u), so that w is the point
    that looks ahead, where the gradient is taken.

    Parameters
    ----------
    momentum, dampening : float, default 0
        β and δ, at least 0 and below 1, dimensionless.
    nesterov : bool, default False
        Nesterov's form; it needs momentum, and no dampening.
    average : None, "polyak" or float
        α, above 0 and up to 1, of an exponential average; "polyak" is the mean of all weights, α = 1/(n + 2) in step
        n = 0, 1, …; None for no average.

    Examples
    --------
    >>> str(SGD(momentum=0.9, average="polyak"))
    "SGD(momentum=0.9, average='polyak')"
    """

    name: ClassVar[str] = "sgd"
    momentum: float = 0.0
    nesterov: bool = False
    dampening: float = 0.0
    average: Literal["polyak"] | float | None = None

    def __post_init__(self) -> None:
        _check_shares(self, momentum=self.momentum, dampening=self.dampening)
        check_switch("nesterov", self.nesterov)
        has_momentum = self.momentum > 0.0
        require(has_momentum or not self.nesterov, "Argument `momentum` must be above 0 for `nesterov`, but is 0.")
        require(has_momentum or not self.dampening, "Argument `momentum` must be above 0 for `dampening`, but is 0.")
        is_undamped = not (self.nesterov and self.dampening)
        require(is_undamped, f"Argument `dampening` must be 0 with `nesterov`, but is {self.dampening:g}.")
        if self.average is not None and self.average != "polyak":
            value: object = self.average
            average = 0.0 if isinstance(value, str) else checked_real(value, "average")
            require(
                0.0 < average <= 1.0,
                "Argument `average` must be None, 'polyak' or a number above 0 and up to 1, but is "
                f"{shown(self.average)}.",
            )
            object.__setattr__(self, "average", average)

    @property
    def amplification(self) -> float:
        """(1 − δ)/(1 − β), the factor of η for plain SGD that moves as this optimizer does, for fixed β as d → ∞."""
        return (1.0 - self.dampening) / (1.0 - self.momentum)


@dataclass(frozen=True)
class ZerothOrder(Optimizer):
    r"""Zeroth-order SGD (MeZO, arXiv:2305.17333): the gradient along random directions, from two losses each.

    .. math:: g = \frac1K \sum_{k=1}^K \frac{\ell(w + \epsilon z_k) - \ell(w - \epsilon z_k)}{2\epsilon}\, z_k, \qquad
       z_k \sim N(0, I)

    over all N trained weights; the samples of a batch share directions.

    Parameters
    ----------
    directions : int, default 1
        K, number of directions per step.
    smoothing : float, default 0
        λ = ε√d ≥ 0, dimensionless; 0 is the limit ε → 0, g = Σ_k (∇ℓ·z_k) z_k / K.

    Examples
    --------
    >>> from dynamics import Problem, Teacher, learning_rate_limit
    >>> problem = Problem(activation="he4", teacher=Teacher([1.0]), width=1, dimension=1000)
    >>> zeroth, plain = learning_rate_limit(problem, optimizer=ZerothOrder(directions=10)), learning_rate_limit(problem)
    >>> f"{zeroth / plain:.4f}"
    '0.0099'
    """

    name: ClassVar[str] = "zeroth-order"
    directions: int = 1
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "directions", checked_integer(self.directions, "directions", minimum=1))
        object.__setattr__(self, "smoothing", checked_number(self.smoothing, "smoothing", positive=False))


@dataclass(frozen=True)
class Adam(Optimizer):
    r"""Adam (arXiv:1412.6980) with bias correction and a vanishing ε, as `torch.optim.Adam`, coordinate by coordinate.

    .. math:: u \leftarrow \beta_1 u + (1 - \beta_1) g, \quad v \leftarrow \beta_2 v + (1 - \beta_2) g^2, \quad
       w \leftarrow w - \eta\, \frac{u/(1 - \beta_1^n)}{\sqrt{v/(1 - \beta_2^n)}}

    in step n = 1, 2, …

    Parameters
    ----------
    beta1, beta2 : float
        β1 and β2, at least 0 and below 1, dimensionless. As d → ∞ a fixed β1 has no effect, and overlaps close where
        κ = (1 − β2) d stays finite.

    Examples
    --------
    >>> Adam(beta2=0.99)  # the `optimizer` of a simulation or a flow
    Adam(beta1=0.9, beta2=0.99)
    >>> checked_optimizer("Adam(beta2=0.99)") == Adam(beta2=0.99)  # the same as text, for a command
    True
    """

    name: ClassVar[str] = "adam"
    sees_axes: ClassVar[bool] = True
    beta1: float = 0.9
    beta2: float = 0.999

    def __post_init__(self) -> None:
        _check_shares(self, beta1=self.beta1, beta2=self.beta2)


@dataclass(frozen=True)
class RMSprop(Optimizer):
    """RMSprop with the bias correction of Adam: `Adam` with β1 = 0.

    That of torch has no correction: its first steps are (1 − β2)^(−1/2) times as long.

    Parameters
    ----------
    beta2 : float, default 0.999
        β2, at least 0 and below 1.

    Examples
    --------
    >>> RMSprop(beta2=0.99)  # the `optimizer` of a simulation or a flow
    RMSprop(beta2=0.99)
    >>> checked_optimizer("rmsprop") == RMSprop()  # the same as text, for a command
    True
    """

    name: ClassVar[str] = "rmsprop"
    sees_axes: ClassVar[bool] = True
    beta1: ClassVar[float] = 0.0
    beta2: float = 0.999

    def __post_init__(self) -> None:
        _check_shares(self, beta2=self.beta2)


@dataclass(frozen=True)
class SignSGD(Optimizer):
    """Sign SGD: every coordinate moves by η against the sign of its gradient, w ← w − η sign(g).

    Examples
    --------
    >>> SignSGD()  # the `optimizer` of a simulation or a flow
    SignSGD()
    >>> checked_optimizer("sign") == SignSGD()  # the same as text, for a command
    True
    """

    name: ClassVar[str] = "sign"
    sees_axes: ClassVar[bool] = True


def keeps_average(optimizer: Optimizer) -> bool:
    """Return whether runs of an optimizer keep an average of the weights."""
    return isinstance(optimizer, SGD) and optimizer.average is not None


OPTIMIZERS: dict[str, type[Optimizer]] = {kind.name: kind for kind in (SGD, ZerothOrder, Adam, RMSprop, SignSGD)}


def checked_optimizer(value: object) -> Optimizer:
    """Return an optimizer: plain SGD for None, and for text such as "adam" or "SGD(momentum=0.9)" the one it names.

    Examples
    --------
    >>> checked_optimizer("zeroth-order") == checked_optimizer("ZerothOrder()") == ZerothOrder()
    True
    """
    if value is None:
        return SGD()
    if isinstance(value, Optimizer):
        return value
    if not isinstance(value, str):
        refuse(
            "Argument `optimizer` must be an optimizer, such as dynamics.SGD(momentum=0.9), or its name, but is "
            f"{shown(value)}.",
            error=TypeError,
        )
    head, opened, _ = value.partition("(")
    makers = OPTIMIZERS | {kind.__name__: kind for kind in OPTIMIZERS.values()}
    make = makers.get(head.strip())
    if make is None:
        refuse(
            f"Argument `optimizer` must be one of {', '.join(map(repr, OPTIMIZERS))}, or a call such as "
            f"'SGD(momentum=0.9)', but is {shown(value)}.{suggestion(head, OPTIMIZERS)}"
        )
    return make(**(_keywords(value, make) if opened else {}))


def _keywords(text: str, make: type[Optimizer]) -> dict[str, object]:
    """Return the keyword arguments of a call, which must be literals; ValueError for any other text."""
    names = [setting.name for setting in fields(make)]
    with suppress(AttributeError, SyntaxError, TypeError, ValueError, RecursionError, MemoryError):
        call = ast.parse(keyboard_text(text).strip().replace(make.name, make.__name__, 1), mode="eval").body
        if isinstance(call, ast.Call) and not call.args:
            keywords = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
            if set(keywords) <= set(names):
                return keywords
    form = ", ".join(f"{name}=…" for name in names)
    return refuse(
        f"Argument `optimizer` must be a call {make.__name__}({form}) with numbers or words, but is {shown(text)}."
    )


def check_dense(optimizer: Optimizer, problem: Problem, batch_size: int) -> None:
    """Refuse a batch, inputs with axes, and a teacher along coordinate axes for an optimizer that sees coordinates."""
    if not optimizer.sees_axes:
        return
    require(
        batch_size == 1,
        f"Argument `batch_size` must be 1 for {optimizer}, since coordinates of the mean of B samples enter through "
        f"erf(drift √(B/2V)), which no overlap holds, but is {batch_size}.",
    )
    require(
        problem.inputs is None,
        f"Argument `problem` must have isotropic inputs for {optimizer}, whose axes are those of the coordinates, but "
        f"has {problem.inputs!r}.",
    )
    rows = problem.teacher.directions
    along_axes = rows is not None and bool(((rows != 0.0).sum(axis=1) == 1).all())
    require(
        not along_axes,
        f"Argument `problem` must have a teacher on dense directions for {optimizer}, whose steps see coordinates, "
        "but has `directions` along coordinate axes: leave `directions` out for orthonormal ones that are dense.",
    )


def _check_shares(optimizer: Optimizer, **shares: float) -> None:
    """Replace fields by floats; ValueError unless they are at least 0 and below 1."""
    for name, value in shares.items():
        share = checked_real(value, name)
        require(0.0 <= share < 1.0, f"Argument `{name}` must be at least 0 and below 1, but is {shown(share)}.")
        object.__setattr__(optimizer, name, share)


PLAIN = SGD()
