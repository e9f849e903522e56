"""What a notebook shows of a problem: formulas, sizes, teacher and start, in a short table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermite.text.html import clean, link_in_a_line, table_of_pairs

if TYPE_CHECKING:
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
#: Coefficients of a teacher that are shown.
MOST_SHOWN = 12


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
    """Return the function of a teacher and its coefficients."""
    if teacher.target is not None:
        return f"f*(x) = {clean(teacher.target.text)}"
    several, biased = teacher.links is not None, teacher.biases is not None
    link = "σ<sub>p</sub>" if several else "σ"
    bias = " + β<sub>p</sub>" if biased else ""
    shown = ", ".join(f"{value:.4g}" for value in teacher.coefficients[:MOST_SHOWN]).replace("-", "−")
    more = ", …" if teacher.coefficients.size > MOST_SHOWN else ""
    angles = "orthonormal" if teacher.is_orthonormal else f"given in R<sup>{teacher.span}</sup>"
    return (
        f"f*(x) = Σ<sub>p</sub> a<sub>p</sub> {link}(θ<sub>p</sub>·x{bias})<br/>"
        f"a<sub>p</sub> = {shown}{more}<br/>directions θ<sub>p</sub>: {angles}"
    )


def _start(problem: Problem) -> str:
    """Return where the neurons start."""
    if problem.initial_weights is not None:
        return "given weights"
    if problem.initial_overlaps is not None:
        return "given overlaps"
    return f"random, |w<sub>i</sub>| = {problem.initial_norm:g}, seed {problem.seed}"
