"""The worked examples of systems of one's own, and the page that shows them."""

import ast
import dataclasses
import itertools
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from processes import python
from scipy.integrate import solve_ivp

import dynamics

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "examples"))
import dropout
import metastable_chain
import weight_decay

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = sorted((DOCS / "examples").glob("*.py"))
SAVED = dynamics.SaveAt.linear(0.0, 300.0, 61)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_needs_public_names_alone(example):
    text = example.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 60
    nodes = list(ast.walk(ast.parse(text)))
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert modules == {"dataclasses", "numpy", "numba", "dynamics"}
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "dynamics"}
    assert used <= set(dynamics.__all__)
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    assert not names & {"locals", "globals", "exec", "eval"}


@pytest.mark.long
def test_the_programs_of_the_page_run(tmp_path):
    page = (DOCS / "adding_a_system.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    check = "assert abs(float(found.learned_strength[-1, 0]) - 3.0 + 2.0 / 9.0) < 1e-6\n"
    # The run ends in time here, so that there is nothing to go on with.
    last = blocks[2].splitlines()[0]
    (tmp_path / "page.py").write_text("\n".join([*blocks[:2], check, last]), encoding="utf-8")
    (tmp_path / "run.py").write_text(f"import sys\nsys.path.insert(0, {str(DOCS / 'examples')!r})\nimport page\n")
    done = python("run.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run.nc").exists()


def problem_of(link, width=12):
    teacher = dynamics.Teacher.power_law(3, beta=1.0)
    return dynamics.Problem(activation=link, teacher=teacher, width=width, dimension=64)


def with_decay(link, decay):
    return dynamics.solve_system(weight_decay.MatchedPairs(problem_of(link), decay), save_at=SAVED, progress=False)


@pytest.mark.parametrize("link", ["he4", {3: 0.8, 5: 0.6}])
def test_without_decay_it_is_the_exact_solution_of_the_pairs(link):
    found = with_decay(link, 0.0)
    exact = dynamics.solve_decoupled(problem_of(link), save_at=SAVED)
    for name in ("overlap", "matched_squared_norm", "loss", "emergence_time", "learned_time"):
        np.testing.assert_allclose(found[name], exact[name], rtol=1e-7, atol=1e-8)


def test_norms_follow_another_integrator_and_end_at_the_fixed_point():
    decay = 0.1
    found = with_decay("he4", decay)
    a = problem_of("he4").teacher.coefficients

    def pairs(t, y):
        C, n = y[:3], np.exp(y[3:])
        return np.concatenate([4 * a * C**3 * (1 - C**2), 4 * (a * C**4 - n) - 2 * decay])

    start = np.concatenate([found.overlap[0], np.log(found.matched_squared_norm[0])])
    reference = solve_ivp(pairs, (0.0, 300.0), start, method="LSODA", t_eval=SAVED.times, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found.overlap, reference.y[:3].T, atol=1e-7)
    np.testing.assert_allclose(found.matched_squared_norm, np.exp(reference.y[3:]).T, atol=1e-7)
    np.testing.assert_allclose(found.matched_squared_norm[-1], a - decay / 2, rtol=1e-7)


def test_a_sweep_varies_the_decay():
    system = weight_decay.MatchedPairs(problem_of("he4"), 0.0)
    options = {"save_at": SAVED}
    found = dynamics.sweep(system, {"decay": [0.0, 0.1]}, study="system", options=options, workers=0, progress=False)
    first, second = found.emergence_time.values
    np.testing.assert_allclose(first, second, rtol=1e-7)
    assert (found.learned_time[0] < found.learned_time[1]).all()


def mean_over_masks(system, state):
    """½ E |U diag(b) Vᵀ/q − A|² by all masks, each with its probability."""
    U, V = state.reshape(2, len(system.strengths), system.width)
    total = 0.0
    for mask in itertools.product([0.0, 1.0], repeat=system.width):
        b, q = np.array(mask), system.keep
        probability = np.prod(np.where(b > 0, q, 1.0 - q))
        total += 0.5 * probability * np.sum((U * b / q @ V.T - np.diag(system.strengths)) ** 2)
    return total


@pytest.mark.thorough
def test_dropout_descends_the_loss_averaged_over_all_masks(rng):
    system = dropout.Dropout(strengths=(1.5, 0.7), width=3, keep=0.6)
    state, step = rng.standard_normal(12), 1e-5
    field = np.empty(12)
    constants, sizes = np.array(system.constants()), np.array(system.sizes())
    type(system).field(0.0, state, field, constants, sizes, np.empty(0))
    ends = [[mean_over_masks(system, state + sign * step * axis) for sign in (1.0, -1.0)] for axis in np.eye(12)]
    gradient = np.diff(ends, axis=1)[:, 0] / (2.0 * step)  # of the second end less the first: −∂
    np.testing.assert_allclose(field, gradient, atol=1e-8)
    assert system.observe(state)["dropout_loss"] == pytest.approx(2.0 * mean_over_masks(system, state), rel=1e-12)


@pytest.mark.thorough
@pytest.mark.parametrize(("keep", "left"), [(0.8, 3), (0.3, 2)])
def test_dropout_leaves_singular_values_above_a_threshold_and_equal_neurons(keep, left):
    """Of a product M the least penalty is |M|_*²/m, so that its singular values are (s − τ)₊, τ = ρ Σ (s − τ)₊/m."""
    strengths, width, rho = np.array([3.0, 2.0, 1.0]), 6, (1.0 - keep) / keep
    system = dropout.Dropout(strengths=tuple(strengths), width=width, keep=keep)
    found = dynamics.solve_system(system, save_at=dynamics.SaveAt.linear(0.0, 2000.0, 11), method="bdf", progress=False)
    tau = rho * strengths[:left].sum() / (width + rho * left)
    expected = np.maximum(strengths - tau, 0.0)
    assert np.count_nonzero(expected) == left
    np.testing.assert_allclose(found.learned_strength[-1], expected, atol=1e-5)
    np.testing.assert_allclose(found.neuron_norm[-1], expected.sum() / width, atol=1e-5)
    assert np.isfinite(found.half_time).values.tolist() == (expected > 0.5 * strengths).tolist()
    assert (np.diff(found.dropout_loss) <= 1e-8).all()


GATE = metastable_chain.Gate(states=20, steps=50, crossing=0.05)


def steps_of_gate(system, count, rate):
    """The states of gradient ascent on the three numbers after each of `count` steps."""
    y, out, states = np.array(system.initial_state()), np.empty(3), []
    for _ in range(count):
        type(system).field(0.0, y, out, np.empty(0), np.array(system.sizes()), np.empty(0))
        y = y + rate * out
        states.append(y)
    return states


@pytest.mark.thorough
def test_three_numbers_are_gradient_ascent_of_all_logits_of_a_gate():
    torch = pytest.importorskip("torch")
    n, H, rate = GATE.states, GATE.steps, 2.0
    start = np.array(GATE.initial_state())
    logits = torch.tensor(np.r_[start[0], start[1], np.full(n - 1, start[2])], requires_grad=True)
    states = steps_of_gate(GATE, 200, rate)
    for step in range(200):
        p = torch.softmax(logits, 0)
        # A Markov chain of n states and one that absorbs; state 0 is the gate.
        rows = torch.full((n + 1, n + 1), 1.0 / n, dtype=torch.float64)
        rows[:, n] = 0.0
        rows[n] = torch.eye(n + 1, dtype=torch.float64)[n]
        rows = torch.cat([torch.cat([p[1:2], p[2:], p[:1]])[None], rows[1:]])
        place = torch.full((n + 1,), 1.0 / n, dtype=torch.float64)
        place[n] = 0.0
        for _ in range(H):
            place = place @ rows
        (slope,) = torch.autograd.grad(place[n], logits)
        logits = (logits + rate * slope).detach().requires_grad_()
        found = logits.detach().numpy()
        np.testing.assert_allclose(found, np.r_[states[step][:2], np.full(n - 1, states[step][2])], atol=1e-12)
    for step, crossing in ((10, 0.682423), (50, 0.952737), (200, 0.988202)):
        assert GATE.observe(states[step - 1])["crossing_probability"] == pytest.approx(crossing, abs=6e-7)


def test_a_gate_starts_flat():
    for crossing, time in ((1e-2, 47.93), (1e-3, 394.01), (1e-4, 3819.14)):
        saved = dynamics.SaveAt.linear(0.0, 1.2 * time, 3)
        system = dataclasses.replace(GATE, crossing=crossing)
        found = dynamics.solve_system(system, save_at=saved, progress=False)
        assert float(found.crossing_time) == pytest.approx(time, abs=6e-3)
        # The mean time until the chain crosses, of uniform inner moves, is n/p_c.
        left = [
            1.0 - dataclasses.replace(system, steps=H).observe(system.initial_state())["reward"] for H in range(200)
        ]
        survival = left[-1] / left[-2]
        assert sum(left) + left[-1] * survival / (1.0 - survival) == pytest.approx(20 / crossing, rel=1e-6)
