"""What a notebook shows of a problem and of what it is made of: formulas, sizes and numbers, in a short table each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermite.text.html import clean, first_of, link_in_a_line, table_of_pairs

if TYPE_CHECKING:
    from dynamics.problem.inputs import Inputs
    from dynamics.problem.problem import Problem
    from dynamics.problem.student import Student
    from dynamics.problem.teacher import Teacher

#: Kind of student -> its function of the input.
FORMULAS = {
    "homogeneous": "f(x) = Σ<sub>i</sub> |w<sub>i</sub>|² σ(w<sub>i</sub>·x / |w<sub>i</sub>|)",
    "committee": "f(x) = Σ<sub>i</sub> σ(w<sub>i</sub>·x)",
    "spherical": "f(x) = (1/m) Σ<sub>i</sub> σ(w<sub>i</sub>·x), |w<sub>i</sub>| = 1",
    "stiefel": "f(x) = Σ<sub>i</sub> |w<sub>i</sub>|² σ(w<sub>i</sub>·x / |w<sub>i</sub>|), w<sub>i</sub> orthogonal "
    "and of one length",
    "network": "f(x) = s Σ<sub>i</sub> v<sub>i</sub> σ(w<sub>i</sub>·x + b<sub>i</sub>)",
}


def problem_html(problem: Problem) -> str:
    """Return a problem as a table of what is asked, without what is as usual."""
    caption = (
        f"<b>Problem</b>: {problem.width} neurons learn {problem.num_directions} directions "
        f"of R<sup>d</sup>, d = {problem.dimension}"
    )
    rows = {"student": FORMULAS[problem.kind], "link σ": link_in_a_line(problem.activation)}
    if not isinstance(problem.student, str):
        rows |= _layers(problem.student)
    rows["teacher"] = _teacher(problem.teacher)
    if problem.teacher_activation is not None:
        rows["link of the teacher"] = link_in_a_line(problem.teacher_activation)
    rows |= {"start": _start(problem), "label noise": f"τ = {problem.label_noise:g}"}
    if problem.inputs is not None:
        rows["inputs"] = clean(repr(problem.inputs))
    if problem.objective != "squared":
        rows["objective"] = f"{clean(problem.objective)}, smoothing λ = {problem.smoothing:g}"
    return table_of_pairs(caption, rows)


def student_html(student: Student) -> str:
    """Return a network as a table: its function, its link, and how its layers are trained."""
    rows = {"f(x)": FORMULAS["network"].removeprefix("f(x) = "), "link σ": link_in_a_line(student.activation)}
    rows |= _layers(student)
    if any(student.decay):
        rows["decay"] = "κ<sub>w</sub> = {:g}, κ<sub>v</sub> = {:g}".format(*student.decay)
    return table_of_pairs(f"<b>Student</b>: {_counted(student.width, 'neuron')}", rows)


def teacher_html(teacher: Teacher) -> str:
    """Return a teacher as a table: its function, and what it is known by."""
    caption = f"<b>Teacher</b>: {_counted(teacher.num_directions, 'direction')}"
    if teacher.target is not None:
        order = {"learned in the order": clean(", ".join(teacher.order)), "leap": str(teacher.leap)}
        return table_of_pairs(caption, {"f*(x)": clean(teacher.target.text)} | order)
    rows = {"f*(x)": _sum_of_units(teacher), "coefficients": _coefficients(teacher), "directions": _directions(teacher)}
    if teacher.beta is not None:
        rows["decay"] = f"a<sub>p</sub> ∝ p<sup>−β</sup>, β = {teacher.beta:g}"
    if teacher.links is not None:
        rows["links"] = f"σ<sub>p</sub>: {first_of([clean(link.name) for link in teacher.links])}"
    if teacher.biases is not None:
        rows["biases"] = f"β<sub>p</sub> = {first_of(teacher.biases.tolist())}"
    return table_of_pairs(caption, rows)


def inputs_html(inputs: Inputs) -> str:
    """Return inputs as a table of the eigenvalues of their covariance."""
    if inputs.eigenvalues is None or inputs.multiplicities is None:
        rows = {"eigenvalues of Σ": f"s<sub>l</sub> = l<sup>−{inputs.alpha:g}</sup>, l = 1 … d"}
    else:
        of_axes = zip(inputs.eigenvalues.tolist(), inputs.multiplicities.tolist(), strict=True)
        values = [f"{value:.4g} ({count} {'axis' if count == 1 else 'axes'})" for value, count in of_axes]
        rows = {"eigenvalues of Σ": first_of(values), "dimension": f"d = {int(inputs.multiplicities.sum())}"}
    return table_of_pairs("<b>Inputs</b> x ~ N(0, Σ)", rows)


def _layers(student: Student) -> dict[str, str]:
    """Return how the layers of a network are trained."""
    rates = ", ".join(
        f"ε<sub>{name}</sub> = {rate:g}" for name, rate in zip("wvb", student.learning_rates, strict=True)
    )
    first = {"free": "free", "sphere": "of kept length"}[student.first_layer]
    return {
        "layers": f"w<sub>i</sub> {first}, v<sub>i</sub> {student.second_layer}, biases: {student.biases}",
        "scale and rates": f"s = {student.output_scale:g}, {rates}",
    }


def _teacher(teacher: Teacher) -> str:
    """Return the function of a teacher, its coefficients and its directions."""
    if teacher.target is not None:
        return f"f*(x) = {clean(teacher.target.text)}"
    return f"f*(x) = {_sum_of_units(teacher)}<br/>{_coefficients(teacher)}<br/>directions {_directions(teacher)}"


def _sum_of_units(teacher: Teacher) -> str:
    link = "σ<sub>p</sub>" if teacher.links is not None else "σ"
    bias = " + β<sub>p</sub>" if teacher.biases is not None else ""
    return f"Σ<sub>p</sub> a<sub>p</sub> {link}(θ<sub>p</sub>·x{bias})"


def _coefficients(teacher: Teacher) -> str:
    return f"a<sub>p</sub> = {first_of(teacher.coefficients.tolist())}"


def _directions(teacher: Teacher) -> str:
    return f"θ<sub>p</sub>: {'orthonormal' if teacher.is_orthonormal else f'given in R<sup>{teacher.span}</sup>'}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _start(problem: Problem) -> str:
    """Return where the neurons start."""
    if problem.initial_weights is not None:
        return "given weights"
    if problem.initial_overlaps is not None:
        return "given overlaps"
    return f"random, |w<sub>i</sub>| = {problem.initial_norm:g}, seed {problem.seed}"
