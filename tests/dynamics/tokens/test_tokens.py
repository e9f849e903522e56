"""Problems on tokens: numbers of their reductions, closed forms, refusals, files, resumption, sweeps, commands."""

import json

import numpy as np
import pytest
from html_reader import read_page

import dynamics
from dynamics import tokens
from dynamics.problem import stored_question
from dynamics.report.elements import cell_text
from dynamics.tokens.__main__ import STUDIES, main
from dynamics.tokens.answers import system_of
from dynamics.tokens.memory import frequencies_of, spectral_recovery
from dynamics.tokens.system import TOKEN_VARIABLES, share_time


def solved(problem, learning_rate=None, **options):
    return tokens.solve(problem, None, learning_rate, progress=False, **options)


def times(problem, learning_rate=None):
    return solved(problem, learning_rate, keep="summary").learned_time.values


SMALL = tokens.Composition(vocabulary=6, hops=4)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"vocabulary": 6, "hops": 4}, [97.985, 223.228, 352.041]),
        ({"vocabulary": 4, "hops": 8}, [191.359, 425.631, 665.330, 907.374]),
        ({"vocabulary": 6, "hops": 4, "loss": "cross-entropy"}, [25.213, 63.079, 102.595]),
    ],
    ids=["N=6", "N=4", "cross-entropy"],
)
@pytest.mark.kernels
def test_a_mixture_learns_hop_by_hop(fields, expected):
    np.testing.assert_allclose(times(tokens.Composition(**fields)), expected, atol=6e-4)


def test_hop_1_has_a_closed_time():
    for N, k, closed, flow in ((6, 4, 97.737, 97.985), (4, 8, 190.628, 191.359), (32, 4, 416.871, 416.920)):
        found = solved(tokens.Composition(vocabulary=N, hops=k), keep="summary")
        assert float(found.predicted_learned_time[0]) == pytest.approx(closed, abs=6e-4)
        assert float(found.learned_time[0]) == pytest.approx(flow, abs=6e-4)
        assert np.isnan(found.predicted_learned_time[1:]).all()


@pytest.mark.parametrize(
    ("problem", "sentences"),
    [
        (
            SMALL,
            [
                "Closed forms of composition, times of learning: hop 1 97.737.",
                "`dynamics.tokens.solve` finds the times that have no closed form.",
            ],
        ),
        (
            tokens.Composition(vocabulary=6, hops=2, data="hardest"),
            ["Closed forms of composition, times of learning: hop 1 never, hop 2 never."],
        ),
        (
            tokens.TriggerTask(symbols=50, gaps=[4]),
            [
                "Closed forms of trigger task, times of learning: none.",
                "`dynamics.tokens.solve` finds the times that have no closed form.",
            ],
        ),
    ],
    ids=["some", "never", "none"],
)
def test_closed_forms_are_printed_as_other_predictions_are(problem, sentences, tmp_path):
    found = tokens.predict(problem)
    lines = str(dynamics.summary(found)).splitlines()
    assert lines[: 1 + len(sentences)] == ["Complete: this answer needs no time stepping.", *sentences]
    assert lines[-1] == f"note: {found.attrs['notes']}"
    page = read_page(dynamics.write_report(found, tmp_path / "closed.html"))
    assert [
        row["component"] for row in page.tables["When each component is learned"]
    ] == found.component.values.tolist()


def test_stages_of_a_curriculum_take_the_same_time():
    problem = tokens.Composition(vocabulary=6, hops=4, data="curriculum", stage_time=400.0)
    found = solved(problem)
    begun = 400.0 * np.arange(3)
    np.testing.assert_allclose(found.learned_time - begun, [32.67, 32.99, 33.15], atol=6e-3)
    np.testing.assert_allclose(found.predicted_learned_time - begun, 97.737 / 3, atol=1e-3)
    assert found.time.values[-1] == 1200.0
    # The map goes over to the flow, whose stages are integrated one by one.
    np.testing.assert_allclose(times(problem, 0.01), found.learned_time, rtol=4e-4)
    assert system_of(tokens.Composition(vocabulary=6, hops=4, data="curriculum")).last_time == pytest.approx(
        3 * 12 * 97.7368 / 3, rel=1e-5
    )


def test_the_hardest_task_alone_never_starts_or_blows_up():
    fields = {"vocabulary": 3, "hops": 2, "data": "hardest"}
    still = solved(tokens.Composition(**fields))
    assert np.isinf(still.predicted_learned_time).all()
    assert np.isnan(still.learned_time).all()
    assert (still.progress == 0).all()
    for score, scaled in ((0.1, 0.487), (0.05, 0.543), (0.0125, 0.597), (0.003, 0.616)):
        problem = tokens.Composition(**fields, initial_score=score)
        assert times(problem)[-1] * score / 6**3 == pytest.approx(scaled, abs=6e-4)
        assert tokens.predict(problem).predicted_learned_time[-1] == pytest.approx(0.6232 * 6**3 / score, rel=1e-4)


def test_steps_leave_the_flow_by_half_as_much_at_half_the_rate():
    # SGD at these rates is 0.027 and 0.0136 away from the flow at most.
    times = dynamics.SaveAt.linear(0.0, 400.0, 801)
    flow = tokens.solve(SMALL, times, progress=False).progress
    for rate, measured in ((0.5, 0.027), (0.25, 0.0136)):
        off = float(abs(tokens.solve(SMALL, times, rate, progress=False).progress - flow).max())
        assert off == pytest.approx(measured, rel=0.03)


def test_no_time_is_told_of_a_hardest_task_whose_constant_is_not_known():
    problem = tokens.Composition(vocabulary=6, hops=64, data="hardest", initial_score=1e-3)
    assert np.isnan(tokens.predict(problem).predicted_learned_time).all()


@pytest.mark.parametrize(("hops", "constant"), [(2, 0.6232), (4, 0.06949), (8, 0.01396)])
def test_the_hardest_task_blows_up_as_a_product_of_powers(hops, constant):
    from scipy.integrate import solve_ivp

    problem = tokens.Composition(vocabulary=3, hops=hops, data="hardest", initial_score=0.01)
    powers = 2.0 ** np.arange(problem.layers)[::-1]

    def large(_, x):
        return x.max() - 1e4

    large.terminal = True
    found = solve_ivp(
        lambda _, x: powers * np.prod(x**powers) / x, (0.0, 1.0), np.ones(problem.layers), events=large, rtol=1e-9
    )
    assert found.t[-1] == pytest.approx(constant, rel=4e-4)
    n = 3.0 * hops
    predicted = float(tokens.predict(problem).predicted_learned_time[-1])
    assert predicted == pytest.approx(constant * n ** (2 * hops - 1) / 0.01 ** (2 * hops - 3), rel=4e-4)
    # Where it starts from: s_l = (ε/n)^(2^l − 1).
    system = system_of(problem)
    small = (0.01 / n) ** (2.0 ** np.arange(1, min(problem.layers, 2) + 1) - 1)
    np.testing.assert_allclose(system.shares(system.initial_state)[:2], small, rtol=0.02)


def test_scores_conserve_their_sum_and_contents_the_loss():
    found = solved(SMALL)
    scores = found.state.values.reshape(-1, 3, 3)
    np.testing.assert_allclose(scores @ [1.0, 5.0, 18.0], 0.0, atol=1e-9)
    losses = -24 * (1 - 1 / 6) * found.progress.values.sum(axis=1) / 3
    np.testing.assert_allclose(found.loss, losses, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.plateau, [0.0, -20 / 3, -40 / 3])


def test_a_referee_agrees():
    np.testing.assert_allclose(
        times(SMALL), solved(SMALL, method="scipy:DOP853", keep="summary").learned_time, rtol=1e-7
    )


def test_the_best_of_n_keys_has_its_closed_time():
    # w' = p (v - p v) for n keys of which the first is better by 1, by another integrator.
    from scipy.integrate import solve_ivp
    from scipy.special import softmax

    def field(_, w):
        p, v = softmax(w), np.eye(w.size)[0]
        return p * (v - p @ v)

    def half(_, w):
        p = softmax(w)
        return p[0] - p[1] - 0.5

    for n in (2, 5, 40):
        found = solve_ivp(field, (0, 400), np.zeros(n), events=half, rtol=1e-10, atol=1e-12)
        assert found.t_events[0][0] == pytest.approx(share_time(n), rel=1e-8)


def test_the_front_door_and_files_know_the_problem(tmp_path):
    found = dynamics.solve_problem(SMALL, learning_rate=0.5, progress=False)
    assert found.attrs["answer"] == "tokens"
    path = dynamics.save(found, tmp_path / "found.nc")
    again = dynamics.load(path)
    assert again.identical(found)
    assert stored_question(again) == SMALL
    assert all(TOKEN_VARIABLES[name].dims == found[name].dims for name in found.variables)
    with pytest.raises(ValueError, match="must hold `parameters` with a problem of a known kind, but has 'unknown'"):
        stored_question(again.assign_attrs(parameters='{"problem": {"kind": "unknown"}}'))
    with pytest.raises(TypeError, match=r"^Argument `problem` must be a Problem, but is int"):
        tokens.solve(3)
    with pytest.raises(ValueError, match=r"must be of the kind 'composition'.*, but is of 'homogeneous'"):
        tokens.predict(dynamics.Problem(activation="he4", teacher=dynamics.Teacher([1.0]), width=1, dimension=4))


def test_sweeps_take_fields_and_options():
    found = dynamics.sweep(
        SMALL, {"vocabulary": [4, 6], "learning_rate": [None, 0.25]}, study="tokens",
        options={"save_at": dynamics.SaveAt.linear(0.0, 400.0, 5)}, workers=0, progress=False,
    )  # fmt: skip
    assert found.learned_time.dims == ("vocabulary", "learning_rate", "component")
    np.testing.assert_allclose(found.learned_time[1, 1], times(SMALL, 0.25), rtol=1e-9)
    assert stored_question(found.isel(vocabulary=0, learning_rate=0)) == tokens.Composition(vocabulary=4, hops=4)


def test_the_command_has_an_option_for_every_field():
    for command in STUDIES.values():
        keys = {option.key for option in command.options} - {"learning_rate"}
        problem = command.prepare({}, progress=False).problem
        assert keys == set(problem.parameters()) - {"kind"}


def test_the_command_writes_prints_and_draws(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["composition", "--learning-rate", "0.25", "--output", "p.nc", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    np.testing.assert_allclose([row["learned"] for row in told["components"]], times(SMALL, 0.25), rtol=1e-9)
    assert (tmp_path / "p.png").stat().st_size > 10_000
    assert main(["composition", "--hop", "2"]) == 2
    assert capsys.readouterr().err == "error: unrecognized arguments: --hop 2. Did you mean '--hops'?\n"
    assert main(["composition", "--hops", "3"]) == 2
    assert "must be a power of 2, but is 3" in capsys.readouterr().err
    page = dynamics.write_report(dynamics.load("p.nc"), tmp_path / "p.html")
    told = [tag["data-facts"] for tag in read_page(page).all("path") if tag["class"] == "curve"]
    found = dynamics.load("p.nc")
    hop, closed, learned = found.component.values[2], found.predicted_learned_time[2], found.learned_time[2]
    assert told[2] == f"component {hop}; closed form t = {cell_text(float(closed))}; learned at t = {learned:.5g}"


def test_the_command_says_of_a_run_whether_it_failed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["recall", "--learning-rate", "1e200", "--no-plot"]) == 1
    assert "Failed at t = " in capsys.readouterr().out
    monkeypatch.setattr(tokens.answers, "MOST_STEPS", 1)
    assert main(["selection", "--tokens", "1000000", "--quiet"]) == 2
    assert capsys.readouterr().err.startswith("error: Argument `save_at` must be given, because not all components")


@pytest.mark.kernels
def test_default_times_of_a_map_are_steps():
    for problem, count in ((recall(4, 32, 4), 400), (tokens.Composition(vocabulary=3, hops=2, data="curriculum"), 400)):
        steps = solved(problem, 0.3, keep="summary").time.values / 0.3
        np.testing.assert_allclose(steps, np.unique(steps.round()), atol=1e-9)
        assert 200 < steps.size <= count


@pytest.mark.kernels
def test_what_is_learned_at_the_start_takes_no_time():
    for N, q in ((2, 1), (3, 2)):
        found = solved(tokens.Selection(tokens=N, selected=q, heads=1), keep="summary")
        assert found.learned_time.values == found.predicted_learned_time.values == 0.0
        assert 0.0 < float(found.time[-1]) < 100.0


def recall(R, S, D, **fields):
    return tokens.FactualRecall(relations=R, subjects=S, answers=D, **fields)


@pytest.mark.parametrize(
    ("sizes", "flow", "closed"),
    [
        ((4, 32, 4), [61.8227, 494.7066], [61.8228, 494.5823]),
        ((4, 64, 8), [85.3616, 880.8143], [85.3618, 880.7181]),
        ((16, 4, 4), [204.085, 117.418], [203.676, 117.659]),
    ],
    ids=["relation first", "more answers", "subject first"],
)
@pytest.mark.kernels
def test_relation_and_subject_have_closed_times(sizes, flow, closed):
    found = solved(recall(*sizes))
    # The page gives the order in which they are learned where the subject comes first.
    np.testing.assert_allclose(found.learned_time, flow, atol=6e-4)
    np.testing.assert_allclose(found.predicted_learned_time, closed, atol=6e-4)
    middle = np.exp(np.log(found.learned_time.values).mean())
    left = np.log(sizes[2] if sizes[1] > sizes[0] else sizes[0])
    assert float(np.interp(middle, found.time, found.loss)) == pytest.approx(left, rel=5e-3)
    assert sorted(found.plateau.values) == pytest.approx([left, np.log(sizes[0] * sizes[2])])
    if sizes == (4, 32, 4):
        assert float(np.interp(middle, found.time, found.loss)) == pytest.approx(1.3926, abs=1e-4)
    if sizes == (4, 64, 8):
        assert float(found.learned_time[1] / found.learned_time[0]) == pytest.approx(10.319, abs=1e-3)


def test_ratio_of_recall_nears_its_leading_order():
    found = tokens.predict(recall(4, 64, 8, initial_scale=1e-3)).predicted_learned_time.values
    leading = 16 * np.sqrt(3 / 7)
    assert leading == pytest.approx(10.475, abs=1e-3)
    assert found[1] / found[0] == pytest.approx(10.317, abs=1e-2)
    square = tokens.predict(recall(4, 64, 4)).predicted_learned_time.values
    assert square[1] / square[0] == pytest.approx(16.0, rel=1e-9)


def test_keys_and_values_of_recall_are_conserved():
    y = solved(recall(4, 32, 4)).state.values
    for key, own, other, many in ((0, 1, 2, 4), (3, 4, 5, 4)):
        hyperbola = y[:, key] ** 2 - many * y[:, own] ** 2 - (16 - many) * y[:, other] ** 2
        np.testing.assert_allclose(hyperbola, hyperbola[0], atol=1e-8)
        np.testing.assert_allclose(many * y[:, own] + (16 - many) * y[:, other], 16e-3, atol=1e-9)


def test_steps_delay_recall_as_measured():
    problem = recall(4, 32, 4)
    np.testing.assert_allclose(times(problem, 0.5) / times(problem), [1.0245, 1.0031], atol=6e-5)


def chain(n):
    return [None, *range(n - 1)]


CHAIN = tokens.CausalGraph(parents=chain(8), vocabulary=5, persistence=0.9)


def test_fitness_on_a_chain_depends_on_the_lag():
    system = system_of(CHAIN)
    by_lag = 8 * system._fitness[7, :7][::-1]
    np.testing.assert_allclose(by_lag, [0.1296, 0, 0.02624, 0.02362, 0.04252, 0.01913, 0.03444], atol=6e-6)


@pytest.mark.parametrize("parents", [chain(5), [None, 0, 0, 1, 2, 1], [None, None, 0, 1, 2]], ids=str)
def test_fitness_is_that_of_all_permutations(parents):
    # E 1{x_s = query} 1{x_t = y} − 1/S² by enumeration of Π, of roots, and of the chain along paths in matrices.
    import itertools

    S, q, n = 4, 0.7, len(parents)
    found = np.zeros((n, n))
    for permutation in itertools.permutations(range(S)):
        P = q * np.eye(S)[list(permutation)] + (1 - q) / S
        joint = np.full((n, n, S, S), 1 / S**2)  # of x_s and x_t
        for t, parent in enumerate(parents):
            joint[t, t] = np.eye(S) / S
            for s in range(t):
                if parent is not None:
                    joint[s, t] = joint[s, parent] @ P
                    joint[t, s] = joint[s, t].T
        found += np.einsum("stab,ab->ts", joint, P) / S / 24
    system = system_of(tokens.CausalGraph(parents=parents, vocabulary=S, persistence=q))
    np.testing.assert_allclose(n * system._fitness, found - 1 / S**2, atol=1e-15)


@pytest.mark.kernels
def test_the_head_forms_token_by_token():
    found = solved(CHAIN)
    np.testing.assert_allclose(found.learned_time, [150.12, 266.55, 371.85, 497.60, 589.31, 696.36], atol=6e-3)
    early = 1 - found.predicted_learned_time / found.learned_time
    assert float(early[0]) == pytest.approx(0.0, abs=1e-9)
    assert 0.0 < float(early[1:].min()) < float(early.max()) < 0.014
    assert (np.diff(found.plateau) < 0).all()
    assert float(found.loss[0]) == pytest.approx(float(found.plateau[0]))


@pytest.mark.kernels
def test_roots_have_nothing_to_learn_and_trees_do_not_mix():
    problem = tokens.CausalGraph(parents=[None, None, 0, 1, 2, None], vocabulary=3, persistence=0.8)
    found = solved(problem)
    assert np.isinf(found.predicted_learned_time).values.tolist() == [False, False, False, True]
    assert np.isnan(found.learned_time).values.tolist() == [False, False, False, True]
    assert (found.progress[:, 3] == 0).all()
    fitness = system_of(problem)._fitness
    assert (fitness[[2, 3, 5], [1, 0, 0]] == 0).all()


@pytest.mark.kernels
def test_a_softmax_is_linear_in_beta_and_compares_with_the_mean():
    weak, strong = (
        solved(tokens.CausalGraph(parents=chain(5), vocabulary=3, persistence=0.8, second_layer="softmax", beta=beta))
        for beta in (0.1, 0.4)
    )
    np.testing.assert_allclose(weak.learned_time, 4 * strong.learned_time, rtol=1e-8)
    assert "To first order in beta" in weak.attrs["notes"]


def test_a_graph_is_tested_at_other_lengths():
    times = dynamics.SaveAt.linear(0.0, 700.0, 8)
    fields = {"vocabulary": 5, "persistence": 0.9}
    whole = tokens.solve(tokens.CausalGraph(parents=chain(8), **fields, test_length=8), times, progress=False)
    np.testing.assert_allclose(whole.test_loss, whole.loss, rtol=1e-12)
    # Scores of the trained rows in the graph of the other length; its new rows are uniform.
    for length in (5, 12):
        found = tokens.solve(tokens.CausalGraph(parents=chain(8), **fields, test_length=length), times, progress=False)
        other = system_of(tokens.CausalGraph(parents=chain(length), **fields))
        state, shared = np.zeros(other.initial_state.size), min(found.number.size, other.initial_state.size)
        state[:shared] = found.state.values[-1, :shared]
        assert float(found.test_loss[-1]) == pytest.approx(other.learning(state)[0], rel=1e-12)
    # Rows of new tokens learn nothing, so that per token the gain is less than at the length of training.
    assert 0.0 < float(found.test_loss[0] - found.test_loss[-1]) < float(whole.loss[0] - whole.loss[-1])
    tree = tokens.CausalGraph(parents=[None, 0, 0, 1, 2], vocabulary=3, persistence=0.8, test_length=4)
    assert tokens.solve(tree, times, progress=False).test_loss.dims == ("time",)


def test_measured_fitness_is_that_of_other_draws():
    problem = tokens.CausalGraph(
        parents=chain(4), vocabulary=3, second_layer="softmax", beta=0.1, transitions="dirichlet"
    )
    from dynamics.tokens.causal_graph import _drawn

    v = system_of(problem)._fitness / problem.beta
    x, query, y = _drawn(problem, 200_000, np.random.default_rng(7))
    # The gradient of −ln(f[y] + 0.05) in a softmax at β = 0, by differences of the loss in one weight.
    asked, right = x == query[:, None], x == y[:, None]
    for t, s in ((2, 1), (3, 0), (3, 2)):
        rises = []
        for step in (-1e-4, 1e-4):
            scores = np.zeros((len(x), 4))
            scores[:, t] = step * asked[:, s]
            rho = np.exp(scores)
            rho /= rho.sum(axis=1, keepdims=True)
            rises.append(np.log((rho * right).sum(axis=1) + 0.05))
        slope = (rises[1] - rises[0]) / 2e-4
        # A false alarm at 4.5 standard errors, of both samples: 2e-5 for three keys.
        error = slope.std() * np.sqrt(1 / len(x) + 1e-6)
        assert v[t, s] == pytest.approx(slope.mean(), abs=4.5 * error)


SIZES = [2, 4, 8, 16, 32]


def memory(smoothing=None, sizes=SIZES):
    optimizer = "gradient" if smoothing is None else "spectral"
    return tokens.AssociativeMemory(group_sizes=sizes, frequency_exponent=1.5, optimizer=optimizer, smoothing=smoothing)


RATES = memory().group_frequencies


def test_frequencies_fall_with_the_rank_and_have_sum_1():
    first, last = np.array([1, 3, 7, 15, 31]), np.array([2, 6, 14, 30, 62])
    weights = (first * last) ** -0.75
    np.testing.assert_allclose(RATES, weights / (weights @ SIZES), rtol=1e-14)


@pytest.mark.kernels
def test_gradient_descent_learns_a_staircase_by_frequency():
    found = solved(memory())
    np.testing.assert_allclose(found.learned_time, [18.36, 95.39, 339.99, 1066.5, 3168.6], rtol=3e-5, atol=6e-3)
    np.testing.assert_allclose(found.predicted_learned_time, found.learned_time, rtol=1e-8)


@pytest.mark.parametrize(
    ("smoothing", "flow", "closed"),
    [
        (RATES[-1] / 100, [4.078, 4.079, 4.083, 4.095, 4.156], [4.111] * 5),
        (RATES[2], [4.087, 4.324, 6.499, 16.275, 46.914], [4.120, 4.353, 6.511, 16.268, 46.899]),
    ],
    ids=["Muon", "smoothed"],
)
@pytest.mark.kernels
def test_the_spectral_optimizer_learns_what_exceeds_its_smoothing_at_once(smoothing, flow, closed):
    found = solved(memory(smoothing))
    np.testing.assert_allclose(found.learned_time, flow, atol=6e-4)
    np.testing.assert_allclose(found.predicted_learned_time, closed, atol=6e-4)


def test_muon_learns_a_thousand_million_items_at_once():
    sizes = [2**k for k in range(1, 30)]
    smoothing = memory(sizes=sizes).group_frequencies[-1] / 100
    found = times(memory(smoothing, sizes))
    assert 20.794 < found.min() < found.max() < 20.796
    staircase = times(memory(sizes=sizes))
    assert staircase[-1] / staircase[0] > 1e12


@pytest.mark.kernels
def test_jacobi_rotations_give_small_singular_values_to_all_digits():
    import mpmath

    from dynamics.integrators.descent import EulerStepper

    sizes = [2**k for k in range(1, 30, 4)]
    n, pi, N = np.array(sizes, dtype=float), memory(sizes=sizes).group_frequencies, float(sum(sizes))
    smoothing = float(pi[-1] / 100)
    found = EulerStepper(system_of(memory(smoothing, sizes)), 1.0).derivative(0.0)[n.size :].reshape(n.size, -1)
    with mpmath.workdps(60):
        G = mpmath.diag([mpmath.mpf(each) for each in pi]) - mpmath.matrix(n.size)
        for k, m in np.ndindex(n.size, n.size):
            G[k, m] -= mpmath.sqrt(mpmath.mpf(n[k]) * n[m]) * mpmath.mpf(pi[m]) / N
        U, s, V = mpmath.svd_r(G)
        h = mpmath.diag([each / mpmath.sqrt(each**2 + mpmath.mpf(smoothing) ** 2) for each in s])
        exact = np.array((U * h * V).tolist(), dtype=float)
    np.testing.assert_allclose(found, exact, atol=1e-9)


def test_batches_slow_muon_where_items_are_seldom_seen():
    np.testing.assert_allclose(tokens.sampled_times(memory(), 64), [4.11, 4.25, 6.70, 15.79, 42.7], rtol=2e-3)
    with pytest.raises(ValueError, match=r"^Argument `batch_size` must be at least 1, but is 0"):
        tokens.sampled_times(memory(), 0)


def one_step(d, N, a, *, spectral=True):
    """A memory with λ = 0.2 p_d."""
    smoothing = 0.2 * d**-a / (np.arange(1.0, N + 1.0) ** -a).sum() if spectral else None
    optimizer = "spectral" if spectral else "gradient"
    return tokens.AssociativeMemory(
        embeddings="gaussian", items=N, dimension=d, frequency_exponent=a, optimizer=optimizer, smoothing=smoothing
    )


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("sizes", "spectral", "gradient"),
    [
        ((48, 1000, 1.5), 38.2, (5.7, 0.3)),
        pytest.param((128, 3870, 1.5), 143.8, (9.7, 0.4), marks=pytest.mark.long),
        pytest.param((96, 2000, 2.0), 89.7, (5.4, 0.4), marks=pytest.mark.long),
    ],
)
def test_one_step_recovers_the_counts_of_the_closed_forms(sizes, spectral, gradient):
    # The spectral counts are those of another evaluation of the same formulas, the others draws and their errors.
    assert float(tokens.solve(one_step(*sizes)).recovered_count) == pytest.approx(spectral, rel=5e-3)
    drawn, error = gradient
    found = float(tokens.solve(one_step(*sizes, spectral=False)).recovered_count)
    assert abs(found - drawn) < 3 * error


def test_one_step_on_a_batch_has_the_closed_form_of_what_was_drawn():
    # Drawn counts over B in place of p: the page has draws, and the closed form of one batch each. Batches scatter, so
    # that closed forms are averaged over 20 of them; 6 % is what they leave to draws.
    problem, rng = one_step(64, 1535, 1.5), np.random.default_rng(0)
    p = frequencies_of(problem, np.arange(1.0, 1536.0), np.ones(1535))
    for batch, drawn, closed in ((30, 13.0, 12.8), (300, 55.5, 56.8), (3000, 57.6, 57.1)):
        found = []
        for _ in range(20):
            seen, many = np.unique(rng.multinomial(batch, p) / batch, return_counts=True)
            found.append(many @ spectral_recovery(np.maximum(seen, 1e-300), many.astype(float), 64, problem.smoothing))
        error = np.std(found, ddof=1) / np.sqrt(20)
        assert abs(np.mean(found) - drawn) < 0.06 * drawn + 3.0 * error
        assert abs(np.mean(found) - closed) < 2.5 * np.std(found) + 0.02 * closed


def test_recovery_by_rank_and_its_growth():
    found = tokens.solve(one_step(128, 3870, 1.5))
    ranks = (found["rank"] >= 128) & (found["rank"] <= 256)
    mean = float((found.recovery * found.rank_count)[ranks].sum() / found.rank_count[ranks].sum())
    assert mean == pytest.approx(0.174, abs=4e-3)
    assert float(found.rank_count.sum()) == 3870
    counts = [float(tokens.solve(one_step(d, N, 1.5)).recovered_count) for d, N in ((1000, 63245), (100_000, 10**7))]
    assert np.log(counts[1] / counts[0]) / np.log(100.0) == pytest.approx(1.30, abs=0.01)


def test_one_step_takes_no_times_and_comes_back(tmp_path):
    problem = one_step(16, 40, 1.5)
    with pytest.raises(ValueError, match=r"^Argument `learning_rate` must be None for Gaussian embeddings"):
        tokens.solve(problem, None, 0.1)
    found = tokens.predict(problem)
    assert found.recovery.dims == ("rank",)
    again = dynamics.load(dynamics.save(found, tmp_path / "found.nc"))
    assert stored_question(again) == problem
    assert "items are recovered" in dynamics.write_report(again, tmp_path / "p.html").read_text(encoding="utf-8")


BAD = (
    (tokens.Composition, {"vocabulary": 6, "hops": 4}, [
        ({"hops": 3}, "Argument `hops` must be a power of 2, but is 3."),
        ({"hops": 1}, "Argument `hops` must be at least 2, but is 1."),
        ({"vocabulary": 1}, "Argument `vocabulary` must be at least 2, but is 1."),
        ({"data": "x"}, "Argument `data` must be one of 'mixture', 'curriculum', 'hardest', but is 'x'."),
        ({"weights": [1.0]}, "Argument `weights` must hold 3 numbers, but holds 1."),
        ({"weights": [1.0, -1.0, 1.0]}, "Argument `weights` must be finite and positive, but is -1.0."),
        ({"stage_time": 3.0}, "Argument `stage_time` must be None unless `data` is 'curriculum', but is 3.0."),
        ({"initial_score": -1.0}, "Argument `initial_score` must be finite and at least 0, but is -1.0."),
    ]),
    (tokens.FactualRecall, {"relations": 4, "subjects": 8, "answers": 4}, [
        ({"subjects": 6}, "Argument `subjects` must be a multiple of `answers`, 4, but is 6."),
        ({"relations": 1}, "Argument `relations` must be at least 2, but is 1."),
        ({"noise_tokens": 3}, "Argument `sequence_length` must be more than 2 if there are noise tokens, and else 2, but is 2."),
        ({"initial_scale": 0.0}, "Argument `initial_scale` must be finite and positive, but is 0.0."),
    ]),
    (tokens.CausalGraph, {"parents": chain(4), "vocabulary": 3, "persistence": 0.8}, [
        ({"parents": [None, 0]}, "Argument `parents` must hold 3 to 256 parents, but holds 2."),
        ({"parents": [0, 0, 1]}, "Argument `parents` must begin with None, since nothing comes before, but with 0."),
        ({"parents": [None, 1, 1]}, "Argument `parents` must be at most 0, but is 1."),
        ({"persistence": 1.5}, "Argument `persistence` must be at most 1, but is 1.5."),
        ({"beta": 0.2}, "Argument `beta` must be given for a softmax second layer alone, but is 0.2."),
        ({"second_layer": "softmax"}, "Argument `beta` must be given for a softmax second layer alone, but is None."),
        ({"transitions": "dirichlet"}, "Argument `second_layer` must be 'softmax' for Dirichlet transitions, but is 'linear'."),
        ({"parents": [None, 0, 0], "test_length": 4}, "Argument `test_length` must be at most 3, because only a chain goes on in a known way, but is 4."),
        ({"test_length": 2}, "Argument `test_length` must be at least 3, but is 2."),
    ]),
    (tokens.Selection, {"tokens": 16, "selected": 2, "heads": 1}, [
        ({"selected": 16}, "Argument `tokens` must be more than `selected`, 16, but is 16."),
        ({"test_length": 2}, "Argument `test_length` must be more than `selected`, 2, but is 2."),
        ({"heads": 2}, "Argument `initial_scale` must be positive for several heads, because heads that start alike stay alike, but is 0.0."),
        ({"heads": 65}, "Argument `heads` must be at most 64, but is 65."),
        ({"initial_scale": -1.0}, "Argument `initial_scale` must be finite and at least 0, but is -1.0."),
    ]),
    (tokens.AssociativeMemory, {"group_sizes": [2, 4], "frequency_exponent": 1.5}, [
        ({"group_sizes": [1]}, "Argument `group_sizes` must hold 1 to 128 sizes of 2 items or more in all, but is (1,)."),
        ({"frequencies": [0.1, 0.2]}, "Arguments `frequencies` and `frequency_exponent` must be one given and one None, but are not."),
        ({"frequencies": [0.1, 0.1], "frequency_exponent": None}, "Argument `frequencies` must be such that those of all items have sum 1, but they have 0.6000000000000001."),
        ({"smoothing": 0.1}, "Argument `smoothing` must be given for the spectral optimizer alone, but is 0.1."),
        ({"optimizer": "spectral"}, "Argument `smoothing` must be given for the spectral optimizer alone, but is None."),
        ({"dimension": 5}, "Argument `dimension` must be at least 6, but is 5."),
    ]),
    (tokens.AssociativeMemory, {"embeddings": "gaussian", "items": 40, "dimension": 16, "frequency_exponent": 1.5}, [
        ({"group_sizes": [2]}, "Argument `group_sizes` must be absent for Gaussian embeddings, but is (2,)."),
        ({"frequency_exponent": None}, "Argument `frequency_exponent` must be given for Gaussian embeddings, but is None."),
        ({"items": 1}, "Argument `items` must be at least 2, but is 1."),
        ({"embeddings": "orthonormal"}, "Argument `items` must be None for orthonormal embeddings, which have groups, but is 40."),
    ]),
    (tokens.TriggerTask, {"symbols": 5, "gaps": [2, 4]}, [
        ({"symbols": 1}, "Argument `symbols` must be at least 2, but is 1."),
        ({"gaps": [2, 2]}, "Argument `gaps` must hold increasing integers, but is [2, 2]."),
        ({"gaps": [0]}, "Argument `gaps` must be at least 1, but is 0."),
        ({"gaps": [200]}, "Argument `gaps` must hold gaps of at most 126, but is (200,)."),
        ({"gap_weights": [0.5]}, "Argument `gap_weights` must hold 2 numbers, but holds 1."),
        ({"gap_weights": [0.5, 0.25]}, "Argument `gap_weights` must have sum 1, but has 0.75."),
        ({"triggers": 0.5}, "Argument `triggers` must be at least 1, but is 0.5."),
        ({"shift": 3}, "Argument `shift` must be at most the least gap, 2, but is 3."),
    ]),
    (tokens.ChainOfThought, {"dimension": 6, "examples": 12, "steps": 4, "rate": 0.3}, [
        ({"dimension": 1}, "Argument `dimension` must be at least 2, but is 1."),
        ({"steps": 1}, "Argument `steps` must be at least 2, but is 1."),
        ({"rate": 0.7}, "Argument `rate` must be below 0.6863, so that the chain converges, but is 0.7."),
        ({"initial_scale": 0.0}, "Argument `initial_scale` must be finite and positive, but is 0.0."),
    ]),
    (tokens.PolicyGradient, {"group_sizes": [1, 15], "rewards": [1.0, 0.0]}, [
        ({"group_sizes": [16]}, "Argument `group_sizes` must hold 2 to 128 sizes, but is (16,)."),
        ({"group_sizes": [0, 15]}, "Argument `group_sizes` must be at least 1, but is 0."),
        ({"rewards": [1.0]}, "Argument `rewards` must hold one finite number for each of 2 groups, but is [1.0]."),
        ({"rewards": [1.0, 1.0]}, "Argument `rewards` must hold two different numbers or more, but is (1.0, 1.0)."),
        ({"rewards": [1e200, 0]}, "Argument `rewards` must be at most 1e100 in size, and differ by at least 1e-100, but is (1e+200, 0.0)."),
        ({"true_rewards": [0, 0]}, "Argument `true_rewards` must hold two different numbers or more, but is (0.0, 0.0)."),
        ({"initial_logits": [0.0, np.inf]}, "Argument `initial_logits` must hold one finite number for each of 2 groups, but is [0.0, inf]."),
        ({"initial_logits": [0.0, -301.0]}, "Argument `initial_logits` must lie within 300 of each other, but is (0.0, -301.0)."),
        ({"objective": "kl", "kl_weight": 2e6}, "Argument `kl_weight` must be at most 1e6 times the range of rewards, but is 2000000.0."),
        ({"kl_weight": 0.1}, "Argument `kl_weight` must be given for 'kl' and 'a-star' alone, but is 0.1."),
        ({"objective": "kl"}, "Argument `kl_weight` must be given for 'kl' and 'a-star' alone, but is None."),
        ({"objective": "grpo", "group_samples": 1}, "Argument `group_samples` must be at least 2, but is 1."),
        (
            {"objective": "grpo", "group_samples": 4, "group_sizes": [1, 1, 1], "rewards": [0, 1, 2]},
            "Argument `group_samples` must be None unless `objective` is 'grpo' and two different rewards are given, but is 4.",
        ),
        ({"group_samples": 4}, "Argument `group_samples` must be None unless `objective` is 'grpo' and two different rewards are given, but is 4."),
    ]),
)  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "fields", "sentence"),
    [(kind, base | fields, sentence) for kind, base, cases in BAD for fields, sentence in cases],
)
def test_bad_problems_get_one_sentence(kind, fields, sentence):
    with pytest.raises(ValueError, match=r"^Argument") as caught:
        kind(**fields)
    assert str(caught.value) == sentence
