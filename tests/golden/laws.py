"""Questions about laws, sweeps, recovery, single numbers, and models of tokens."""

import dataclasses
from functools import partial

import numpy as np

import dynamics
import dynamics.tokens
import hermite
import sgd_check
import sgd_check.tokens
from dynamics import SaveAt, tokens

from .flows import CLASSES, FRAME, NEURONS, QUADRATIC, SPECTRUM
from .questions import HE3, SHORT, Case, problem, quietly

LAWS = {
    "laws-scaling": Case(quietly(dynamics.scaling_study, directions=16, dimension=32, starts=1), 1e-8),
    "laws-scaling-spectrum": Case(quietly(dynamics.scaling_study, directions=16, dimension=48, starts=1, spectrum=0.25), 1e-8),
    "laws-finite-size": Case(quietly(dynamics.finite_size, betas=(1.0,), sizes=(16, 64), dimension=256, starts=2), 1e-8),
    "laws-frontier": Case(quietly(dynamics.compute_frontier, directions=16, dimension=32, widths=(2, 4, 8), starts=1), 1e-8),
    "laws-transfer": Case(
        quietly(
            dynamics.transfer_study, directions=2, dimension=12, widths=(2, 3, 4, 6), steps=60, starts=2, workers=1
        ),
        # These are fits of few points: the errors of their exponents are of order one.
        1e-6,
    ),
    "laws-quadratic": Case(quietly(dynamics.quadratic_laws, directions=32, width=16, dimensions=(1000, 10**6), starts=1), 1e-8),
    "sweep": Case(
        quietly(
            partial(dynamics.sweep, problem(), {"beta": [0.8, 1.2], "seed": [0, 1]}),
            options={"save_at": SHORT, "rtol": 1e-6},
            workers=0,
        ),
        1e-6,
    ),
    "sweep-sgd": Case(
        quietly(
            partial(dynamics.sweep, HE3, {"seed": [0, 1]}),
            study="projected-sgd",
            options={"save_at": SHORT, "learning_rate": 2e-3, "steps": 1000, "seeds": 2},
            workers=0,
        )
    ),
    "recovery": Case(partial(dynamics.predict_recovery, "he3", dimension=1000, samples=10**5), 1e-8),
    "recovery-transformed": Case(partial(dynamics.predict_recovery, "min(z**2, 3)", dimension=300, samples=1200, degree=2), 1e-8),
}  # fmt: skip


def limits():
    """Return the largest learning rates, of every system."""
    asked = {
        "homogeneous": problem(),
        "odd": HE3,
        "noise": problem(label_noise=0.3),
        "quadratic": QUADRATIC,
        "frame": FRAME,
        "classes": CLASSES,
        "spectrum": SPECTRUM,
    }
    found = {name: float(dynamics.learning_rate_limit(each)) for name, each in asked.items()}
    return found | {"batch": float(dynamics.learning_rate_limit(problem(), batch_size=4))}


def moments():
    """Return exact moments of one step, from weights and from overlaps."""
    asked = problem(activation={3: 0.8, 4: 0.6}, width=2, initial_norm=0.5, label_noise=0.1)
    W = asked.reduced_weights()
    direct = dynamics.one_step_moments(asked, batch_size=2)
    of_overlaps = dynamics.moments_of_overlaps(asked, W[:, :2], W @ W.T, batch_size=2)
    names = [field.name for field in dataclasses.fields(dynamics.OneStepMoments)]
    both = {"weights": direct, "overlaps": of_overlaps}
    return {f"{way} {name}": np.asarray(getattr(each, name)) for way, each in both.items() for name in names}


def steps_of_learning():
    """Return when a direction is learned, in steps of SGD."""
    flow = dynamics.solve_overlaps(HE3, save_at=SaveAt.at([1.0]), progress=False)
    late = dynamics.solve_overlaps(HE3, progress=False)
    found = {}
    for name, event in (("emergence", "emergence"), ("learning", "learned")):
        try:
            steps = dynamics.learning_steps(late, direction=1, event=event, learning_rate=1e-4)
        except ValueError as error:
            found[name] = str(error)
            continue
        for field in dataclasses.fields(steps):
            value = getattr(steps, field.name)
            found[f"{name} {field.name}"] = list(value) if isinstance(value, tuple) else value
    try:
        found["too early"] = str(dynamics.learning_steps(flow, direction=1, learning_rate=1e-4))
    except ValueError as error:
        found["too early"] = str(error)
    return found


def expansions():
    """Return what expansions say of links of every kind."""
    found = {}
    for link in ("he3", "relu", "erf", "tanh", "sign", "z**2*exp(-z**2)", "0.8*h4(z) + 0.6*h6(z)"):
        each = hermite.expand(link, order=8)
        values = [each.information_exponent, each.parity, each.norm_squared, each.truncation_error, each.name]
        found |= dict(zip((f"{link} {key}" for key in ("k", "parity", "norm", "rest", "name")), values, strict=True))
        found[f"{link} coefficients"] = each.coefficients
        exponent = hermite.generative_exponent(each)
        found[f"{link} generative"] = exponent.exponent
        found[f"{link} label correlations"] = np.asarray(hermite.label_correlations(each, degree=4))
    return found | {"leap": repr(hermite.leap("sign(z1) + sign(z1*z2*z3)"))}


def fitted():
    """Return a fitted power law, shared starts and a schedule."""
    x = np.geomspace(1.0, 100.0, 9)
    fit = dynamics.fit_power_law(x, 3.0 * x**-0.7 * (1 + 0.01 * np.cos(x)))
    return {
        "fit": np.array([fit.exponent, fit.standard_error, fit.prefactor, *fit.window, fit.count]),
        "coupled start": NEURONS.initial_weights,
        "start": np.concatenate([np.ravel(part) for part in problem().start()]),
        "schedule": SaveAt.geometric(0.5, 60.0, 6).times,
        "decay": [sgd_check.power_law_decay(0.1, 0.5)(step) for step in (0, 1, 10)],
        "pieces": [sgd_check.piecewise([0.1, 0.01], [5])(step) for step in (0, 4, 5)],
    }


VALUES = {
    "limits": Case(limits, 1e-8),
    "one-step-moments": Case(moments),
    "learning-steps": Case(steps_of_learning, 1e-6),
    "expansions": Case(expansions),
    "small-values": Case(fitted),
}


COMPOSITION = tokens.Composition(vocabulary=6, hops=4)
CHAIN = tokens.CausalGraph(parents=[None, 0, 1, 2, None], vocabulary=3, persistence=0.8)
MEMORY = tokens.AssociativeMemory(group_sizes=[2, 4, 8], frequency_exponent=1.5)
SPECTRAL = tokens.AssociativeMemory(group_sizes=[2, 4, 8], frequency_exponent=1.5, optimizer="spectral", smoothing=0.01)
RECALL = tokens.FactualRecall(relations=4, subjects=8, answers=4)
GAUSSIAN = tokens.AssociativeMemory(embeddings="gaussian", items=3870, dimension=128, frequency_exponent=1.5)
TOKEN_PROBLEMS = {
    "composition": COMPOSITION,
    "composition-curriculum": tokens.Composition(vocabulary=6, hops=4, data="curriculum", stage_time=400.0),
    "composition-hardest": tokens.Composition(vocabulary=3, hops=4, data="hardest", initial_score=0.01),
    "composition-cross-entropy": tokens.Composition(vocabulary=4, hops=2, loss="cross-entropy"),
    "recall": RECALL,
    "recall-noise": tokens.FactualRecall(relations=4, subjects=8, answers=4, noise_tokens=2, sequence_length=4),
    "causal-graph": CHAIN,
    "causal-graph-softmax": tokens.CausalGraph(parents=[None, 0, 1, 2], vocabulary=3, persistence=0.8, second_layer="softmax", beta=2.0),
    "memory": MEMORY,
    "memory-spectral": SPECTRAL,
    "policy-gradient": tokens.PolicyGradient(group_sizes=[1, 1, 6, 24], rewards=[0.8, 1.0, 0.3, 0.0], true_rewards=[1.0, 0.8, 0.3, 0.0]),
    "policy-gradient-kl": tokens.PolicyGradient(group_sizes=[1, 15], rewards=[1.0, 0.0], objective="kl", kl_weight=0.3),
    "policy-gradient-grpo": tokens.PolicyGradient(group_sizes=[1, 15], rewards=[1.0, 0.0], objective="grpo", group_samples=4),
    "trigger": tokens.TriggerTask(symbols=20, gaps=[2, 4], gap_weights=[0.75, 0.25], triggers=2.0),
    "chain": tokens.ChainOfThought(dimension=4, examples=8, steps=3, rate=0.3),
    "selection": tokens.Selection(tokens=8, selected=2, heads=2, initial_scale=0.5, test_length=32),
}  # fmt: skip
STEPPED = {
    "composition": 0.25,
    "recall": 0.5,
    "causal-graph": 0.5,
    "memory": 0.1,
    "memory-spectral": 0.02,
    "policy-gradient-grpo": 0.05,
    "trigger": 0.5,
    "chain": 0.1,
    "selection": 0.5,
}
TOKEN_TIMES = SaveAt.geometric(1.0, 300.0, 8)
TOKENS = {
    **{f"tokens-{name}": Case(partial(tokens.solve, each, TOKEN_TIMES, progress=False), 1e-9) for name, each in TOKEN_PROBLEMS.items()},
    **{
        f"tokens-{name}-steps": Case(partial(tokens.solve, TOKEN_PROBLEMS[name], TOKEN_TIMES, rate, progress=False))
        for name, rate in STEPPED.items()
    },
    **{f"tokens-{name}-closed": Case(partial(tokens.predict, TOKEN_PROBLEMS[name])) for name in ("composition", "recall", "causal-graph", "memory")},
    "tokens-default-times": Case(partial(tokens.solve, COMPOSITION, keep="summary", progress=False)),
    "tokens-scipy": Case(partial(tokens.solve, COMPOSITION, TOKEN_TIMES, method="scipy:DOP853", rtol=1e-8, progress=False)),
    "tokens-gaussian": Case(partial(tokens.solve, GAUSSIAN), 1e-6),
    "tokens-sampled-times": Case(lambda: {"times": tokens.sampled_times(MEMORY, 64)}),
    "tokens-rank-bins": Case(lambda: {"bins": np.concatenate([np.ravel(part) for part in tokens.rank_bins(1000)])}),
}  # fmt: skip
