"""Three phases of the step size: the flow, late and scattered escapes, and runs that blow up."""

import numpy as np

import dynamics
import sgd_check

# One neuron and one direction of link h_3; the starting squared overlap is 4/d.
dimension = 24
pair = dynamics.Problem(activation="he3", teacher=dynamics.Teacher([1.0]), width=1, dimension=dimension)
limit = dynamics.learning_rate_limit(pair)

study = sgd_check.step_size_phases(
    information_exponent=3,
    dimension=dimension,
    learning_rates=limit * np.geomspace(1 / 8, 8, 7),
    seeds=24,
    progress=False,
)
print("share of runs blown up:", study.blown_up_share.round(1).values.tolist())

figure = sgd_check.plot_study(study)
figure.savefig("step_size_phases.png")
