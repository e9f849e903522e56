"""Two steps on the same samples see what no step on fresh ones does: links of generative exponent 1."""

import matplotlib.pyplot as plt
import numpy as np

import dynamics
import hermite
import sgd_check

d, rate, steps, runs = 800, 4.0, 4, 48
student = dynamics.Student(activation="erf", width=1, second_layer="fixed", initial_second_layer=[1.0])
with dynamics.figure_style("talk"):
    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
for link, text, again, colour in (
    ("he3", "$h_3$", True, "#0072b2"),
    ("he3", "$h_3$", False, "#009e73"),
    ("he2", "$h_2$", True, "#d55e00"),
):
    problem = dynamics.Problem(
        student=student, teacher=dynamics.Teacher([1.0], links=[link]), dimension=d, initial_weights=[[0.0, 1.0]]
    )
    batches = 1 if again else steps
    theory = dynamics.solve_reused_data(
        problem, samples=f"{4 * batches}d", learning_rate=rate, steps=steps, batches_per_epoch=batches
    )
    given = {"passes": steps, "training_samples": 4 * d} if again else {"steps": steps}
    found = sgd_check.simulate(
        problem,
        learning_rate=rate,
        batch_size=4 * d,
        engine="torch",
        seeds=runs,
        save_at=dynamics.SaveAt.at(theory.time.values),
        progress=False,
        **given,
    )
    expected, measured = ((one.teacher_overlap * np.sqrt(one.squared_norm))[..., 0, 0] for one in (theory, found))
    mean, error = measured.mean("seed"), measured.std("seed", ddof=1) / runs**0.5
    name = f"{text}, {'the same samples' if again else 'fresh samples'}"
    axes.plot(theory.step, expected, color=colour)
    axes.errorbar(theory.step, mean, yerr=2 * error, fmt="o", color=colour, capsize=3, label=name)
    exponent, seen = hermite.generative_exponent(hermite.expand(link)).exponent, abs(float(expected[2]))
    print(f"{name}, generative exponent {exponent}: |M| = {seen:.2f} after two steps")
axes.set(
    xlabel="steps on $n = 4d$ samples",
    ylabel=r"overlap $M = w \cdot \theta$",
    title=f"Lines: theory, dots: {runs} runs at $d = {d}$, twice the s.e.",
)
axes.set_xticks(range(steps + 1))
axes.legend(frameon=False)
figure.savefig("two_steps.png")
