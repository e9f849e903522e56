"""Further claims of the founding papers: the frontier's exponents, methods side by side, composition, widths by name."""

import json

import numpy as np
import pytest

import dynamics
from dynamics import Problem, Teacher, laws, tokens
from dynamics.commands.options import neurons
from dynamics.laws import scaffold, surface
from dynamics.laws.__main__ import main
from dynamics.laws.paper import (
    CONSTANT,
    FAILED,
    HOLDS,
    IDENTITY,
    MISPRINTED,
    PARTS,
    SCALING,
    SIZE,
    UNMEASURED,
    UNRESOLVED,
    VERDICTS,
    Claim,
)
from dynamics.report.claims import plot_claim
from dynamics.solve.__main__ import main as solve
from dynamics.tokens import system_of


@pytest.mark.thorough
def test_the_exponents_of_the_frontier_are_the_accepted_ones():
    """P = 1024, beta = .8, d = 2048, eight widths: -.403, -.404, -.481; of pairs -.487 +- .008 over four starts."""
    found = laws.frontier(progress=False)
    exponent = found.exponent.values
    assert exponent[1:4] == pytest.approx([-0.403, -0.404, -0.481], abs=0.002)
    assert exponent[4] == pytest.approx(-0.427, abs=0.005)  # the set alone
    assert abs(exponent[5] + 0.495) < 0.010 + found.exponent_error.values[5]
    assert exponent[6] == pytest.approx(-0.487, abs=0.001)
    assert exponent[0] == pytest.approx(found.attrs["asymptotic"], abs=found.exponent_error.values[0])
    pairs = dynamics.compute_frontier(starts=1, progress=False)
    last = float(pairs.time[-1])
    for width in (32, 512):  # curves of equal compute are those of the losses in time, here of one start of four
        alone = laws.frontier(widths=(16, 32, 512), starts=1, progress=False)
        compute = float(alone.isoflop_compute[-1])
        time = compute * 0.1 / width
        assert time <= last
        loss = np.interp(
            np.log(time), np.log(pairs.time), np.log(pairs.loss.sel(curve_of="matched pairs", width=width))
        )
        assert float(alone.isoflop_loss.sel(width=width)[-1]) == pytest.approx(np.exp(loss), rel=0.03)


@pytest.mark.thorough
def test_of_endlessly_many_directions_the_frontier_has_its_limit():
    """Accepted at P = 1024, beta = .8 and 57 widths: -.332, where the limit is -1/3."""
    widths = np.unique(np.rint(16 * 2 ** (np.arange(57) / 8)).astype(int)).tolist()
    found = laws.frontier(widths=widths, starts=1, progress=False)
    assert found.exponent.values[0] == pytest.approx(-0.332, abs=0.001)
    assert found.exponent.values[1] < -0.40
    with pytest.raises(ValueError, match="above 1/2"):
        laws.frontier(beta=0.5)


def test_the_least_loss_is_the_sum_and_its_law():
    """Against a plain sum of ten million terms and its tail as an integral; slopes from 10^3 to 10^6 as accepted."""
    p = np.arange(1, 10_000_001.0)
    for beta, slope in ((0.8, -0.3749), (1.0, -0.4995), (1.5, -0.6640)):
        for n in (1.0, 50.0, 1e4):
            plain = np.minimum(p ** (-2.0 * beta), 1.0 / n).sum() + p[-1] ** (1.0 - 2.0 * beta) / (2.0 * beta - 1.0)
            assert float(laws.minimax_loss(n, beta)) == pytest.approx(plain, rel=1e-6)
        n = np.geomspace(1e3, 1e6, 60)
        assert np.polyfit(np.log(n), np.log(laws.minimax_loss(n, beta)), 1)[0] == pytest.approx(slope, abs=1.5e-3)
    assert float(laws.minimax_loss(1e6, 1.0)) / 2e-3 == pytest.approx(0.9998, abs=5e-5)
    with pytest.raises(ValueError, match="above 1/2"):
        laws.minimax_loss(10.0, 0.5)


def test_methods_have_their_laws_and_widths():
    found = laws.methods(dimension=100, directions=16, wanted=4, progress=False)
    weak = Teacher.power_law(16, 1.0).coefficients[3] ** -2
    expected = {"kernel": 1e8, "kernel of relu": 1e8, "layer-wise": weak * 1e6, "online SGD": weak * 1e6, "smoothed": 1e4,
                "reused batches": 100.0, "minimax": weak}  # fmt: skip
    assert found.samples_needed.to_series().to_dict() == pytest.approx(expected)
    m = int(found.neurons.sel(algorithm="layer-wise"))
    chances = laws.layerwise_chances(Teacher.power_law(16, 1.0))[:4]
    rng, wins = np.random.default_rng(0), np.empty((2, 4000))
    for row, width in enumerate((m, m - 8)):
        strength = Teacher.power_law(16, 1.0).coefficients * rng.standard_normal((4000, width, 16)) ** 2
        winners = strength.argmax(axis=2)
        wins[row] = [len({0, 1, 2, 3} & set(row)) == 4 for row in winners.tolist()]
    # The product of chances leaves out that wins exclude each other: a share of .01 here, errors of .0035.
    assert wins[0].mean() == pytest.approx(0.95, abs=0.02)
    assert wins[1].mean() < 0.95
    assert chances.min() > 0.0


def test_a_method_that_never_learns_has_no_bar():
    found = laws.methods(information_exponent=3, dimension=64, directions=4, wanted=1, progress=False)
    assert np.isinf(found.samples_needed.sel(algorithm="kernel of relu"))
    left = plot_claim(found).axes[0]
    assert [text.get_text() for text in left.texts][:2] == ["$d^{3}$", "never"]
    assert np.isfinite(left.get_xlim()).all()


@pytest.mark.parametrize(("N", "k", "score"), [(6, 4, 5.0), (6, 8, 8.0), (8, 16, 6.0)])
def test_the_construction_composes_with_the_weight_of_the_reduced_equations(N, k, score):
    """The reduction to three scores a layer is exact for every input, and was derived apart from the construction."""
    built = laws.construct_composition(N, k, score, draws=8)
    assert built.accuracy == 1.0
    s = system_of(tokens.Composition(vocabulary=N, hops=k)).shares(np.tile([score, 0.0, 0.0], k.bit_length()))[-1]
    assert built.weight == pytest.approx(s + (1.0 - s) / N, rel=1e-12)
    assert laws.construct_composition(N, k, 1e-9, draws=8).accuracy < 0.9
    bounds = laws.composition_bounds(N, k)
    assert bounds.descent == pytest.approx(float(N * k) ** (2 * k - 1))
    assert bounds.information == pytest.approx(k * np.log(np.arange(1.0, N + 1)).sum() / np.log(N))


def test_hop_1_takes_two_to_four_samples_and_no_power():
    """Accepted: 2 to 4 for N = 4 to 64 and k = 2 to 16; the number is the logarithm rounded up, at 2000 rows."""
    found = laws.composition(progress=False)
    samples = found.hop_samples.values
    assert samples.min() == 2
    assert samples.max() == 4
    assert (samples == np.ceil(found.hop_law.values)).all()
    assert not [name for name in found.attrs if "slope" in name]  # of numbers from 2 to 4 a slope tells nothing
    assert (found.hop_bound > 1e6).all()
    with pytest.raises(ValueError, match="power of 2"):
        laws.hop_samples(4, 3)


def test_a_width_by_the_first_directions_is_that_of_greedy_matching(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    expected = laws.width_for(Teacher.power_law(8, 1.0), top=3, progress=False).neurons
    small = ["--k", "4", "--directions", "8", "--dimension", "32", "--model", "decoupled", "--no-plot", "--json"]
    assert solve([*small, "--width", "top:3", "--output", "run.nc"]) == 0
    assert Problem.from_dataset(dynamics.load(json.loads(capsys.readouterr().out)["output"])).width == expected
    found = laws.theorem_study(directions=3, width="top:2", dimensions=[64], progress=False)
    assert Problem.from_dataset(found).width == laws.width_for(Teacher.power_law(3, 1.0), top=2, progress=False).neurons
    for width, sentence in (
        ("top:9", "must be at most 8, but is 9"),
        ("top:0", "must be at least 1"),
        ("first:3", "must be a number or top:COUNT"),
    ):
        assert solve([*small, "--width", width, "--dry-run"]) == 2
        assert sentence in capsys.readouterr().err
    assert solve(["--k", "2", "--width", "top:3", "--dry-run"]) == 2
    assert "greedy matching begins at 3" in capsys.readouterr().err
    assert neurons("12") == 12


def test_the_study_of_widths_has_those_of_single_calls():
    found = laws.width_study(directions=32, tops=(2, 4), draws=200, progress=False)
    calls = [laws.width_for(Teacher.power_law(32, 1.0), top=top, draws=200, progress=False) for top in (2, 4)]
    assert found.neurons.values.tolist() == [call.neurons for call in calls]
    assert found.matched_chance_low.values.tolist() == [call.chance_low for call in calls]
    assert found.attrs["width_slope"] == pytest.approx(np.log(calls[1].neurons / calls[0].neurons) / np.log(2.0))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("width --directions 16 --tops 2,4 --draws 50", "Slope of ln m"),
        ("frontier --directions 64 --dimension 128 --widths 4,8,16,32,64 --starts 2", "matched pairs"),
        ("methods", "reused batches"),
        ("composition", "a logarithm, not a power"),
        ("edge --sizes 2,4 --dimension 64", "largest eigenvalue of the Hessian"),
    ],
)
def test_commands_tell_and_draw(command, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*command.split(), "--output", "found.nc"]) == 0
    assert said in capsys.readouterr().out
    assert (tmp_path / "found.png").stat().st_size > 10_000
    assert dynamics.write_report("found.nc", "found.html").exists()


def test_internals_are_no_part_of_the_public_face():
    assert set(laws.__all__) == {
        "CompositionBounds", "Construction", "Width", "check_theorem", "composition", "composition_bounds",
        "construct_composition", "decoupling", "fit_surface", "frontier", "hop_samples", "infer",
        "layerwise_chances", "layerwise_loss", "methods", "minimax_loss", "paper", "stability_edges", "surface_fits", "theorem_study",
        "width_for", "width_study",
    }  # fmt: skip


def test_the_largest_stable_step_has_no_power_of_the_number_of_directions():
    """Accepted by the formula at k = 4, beta = 1, d = 4096, P = 4, 16, 64; the map at this d is 6.2/d below it."""
    found = laws.stability_edges(progress=False)
    formula = found.step_limit_large_dimension.values
    assert formula == pytest.approx([1.566e-6, 1.652e-6, 1.675e-6], rel=5e-4)
    assert found.step_limit.values / formula == pytest.approx(1.0 - 6.2 / 4096, abs=5e-4)
    assert abs(found.attrs["limit_slope"]) < 0.03


def claim(measured, claimed, kind="exponent", error=np.nan):
    return Claim("", measured, error, claimed, kind)


def test_verdicts_follow_one_rule():
    assert claim(-1.04, -1.0).verdict == HOLDS
    assert claim(-1.06, -1.0).verdict == SIZE
    assert claim(-1.06, -1.0, error=0.031).verdict == HOLDS
    assert claim(0.04, 0.0).verdict == HOLDS
    assert claim(0.06, 0.0).verdict == SIZE
    assert [claim(x, 1.0, "bound").verdict for x in (-9.0, 1.04, 1.1)] == [HOLDS, HOLDS, SIZE]
    assert [claim(x, 1.0, "floor").verdict for x in (9.0, 0.96, 0.9)] == [HOLDS, HOLDS, SIZE]


def test_a_constant_is_another_one_within_a_factor_of_3():
    found = [claim(x, -1.0, "constant").verdict for x in (-1.06, -2.9, -0.34, -3.1, -0.32, 0.0, 1.0)]
    assert found == [CONSTANT] * 3 + [SIZE] * 4
    assert claim(0.1, 0.0, "constant").verdict == SIZE
    assert [claim(x, 1.0, "printed").verdict for x in (1.04, 1.1)] == [HOLDS, MISPRINTED]


@pytest.mark.parametrize("kind", ["exponent", "constant", "bound", "floor", "printed"])
def test_what_was_not_measured_or_resolved_holds_nowhere(kind):
    assert [claim(x, 1.0, kind).verdict for x in (np.nan, np.inf, -np.inf)] == [UNMEASURED] * 3
    assert claim(3.0, 0.5, kind, error=5.0).verdict == UNRESOLVED
    assert claim(0.5, 0.5, kind, error=np.inf).verdict == UNRESOLVED
    assert claim(0.5, 0.5, kind, error=0.12).verdict == HOLDS
    assert claim(9.0, 0.5, error=1.0).verdict == SIZE  # a large error, but a larger distance


def test_claims_that_cannot_fail_and_accuracies_are_told_apart():
    assert Claim("", 1.0, np.nan, 1.0, is_identity=True).verdict == IDENTITY
    assert Claim("", 2.0, np.nan, 1.0, is_identity=True).verdict == SIZE
    assert Claim("", 0.99, np.nan, 1.0, "floor", tolerance=0.0).verdict == SIZE
    found = laws.paper(parts=["minimax", "surface", "composition", "layerwise"], progress=False)
    verdicts = found.claim_verdict.to_series()
    by_construction = ["minimax-exponent", "minimax-constant", "surface-max", "layerwise-loss"]
    assert (verdicts[by_construction] == IDENTITY).all()
    assert verdicts[["surface-sum", "composition", "hop-samples"]].tolist() == [SIZE, HOLDS, HOLDS]
    assert (found.claim_kind == "identity").sum() == 4
    assert "2 to 4 at eight sizes" in str(found.statement.sel(claim="hop-samples").values)


def test_a_part_that_fails_says_so_and_keeps_the_others(tmp_path, monkeypatch, capsys):
    def fails(_seed):
        sentence = "Argument `x` must be 1,\nbut is 2."
        raise ValueError(sentence)

    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as changed:
        changed.setitem(PARTS, "width", (fails, ""))
        assert main(["paper", "--parts", "minimax,width,edge", "--output", "paper.nc"]) == 0
    assert "Part width failed: Argument `x` must be 1, but is 2." in capsys.readouterr().out
    found = dynamics.load("paper.nc")
    assert found.part.values.tolist() == ["minimax", "minimax", "width", "edge", "edge"]
    row = found.sel(claim="width")
    assert str(row.statement.values) == f"{FAILED}Argument `x` must be 1, but is 2."
    assert str(row.claim_verdict.values) == UNMEASURED
    monkeypatch.setitem(PARTS, "width", (lambda _seed: {"width": claim(1.0, 1.0)}, ""))
    again = laws.paper(parts=["minimax", "width", "edge"], resume=found, progress=False)
    assert again.claim_verdict.sel(claim="width") == HOLDS
    assert again.sizes["claim"] == found.sizes["claim"]


@pytest.mark.thorough
def test_every_part_takes_a_seed():
    """Runs of SGD have seeds, and their start none; the power is 2 by choice of the step, here within .2."""
    found = laws.paper(parts=["sgd", "theorem", "width"], seed=1, progress=False)
    verdicts = found.claim_verdict.to_series()
    assert UNMEASURED not in verdicts.tolist()
    assert verdicts["sgd-samples"] == IDENTITY
    assert "0 % of runs did not emerge" in str(found.statement.sel(claim="sgd-samples").values)
    assert found.measured.sel(claim="sgd-samples") == pytest.approx(2.0, abs=0.2)
    order = found.sel(claim="theorem-c-order")
    measured = laws.theorem_study(seed=1, progress=False).delta_c.isel(start=0).values
    np.testing.assert_allclose(order.claim_y[:3], measured)
    assert float(order.measured) == pytest.approx(np.polyfit(np.log(order.claim_x[:3]), np.log(measured), 1)[0])
    # The error of the slope of ln m: from the ends of the intervals of the chance at 200 draws, about .1 in ln m.
    assert 0.02 < float(found.measured_error.sel(claim="width")) < 0.15


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ([], "must name one part or more, each once"),
        (["minimax", "minimax"], "must name one part or more, each once"),
        ("minimax", "must be a list of names, but is 'minimax'"),
        (3, "must be a list of names"),
    ],
)
def test_parts_are_names_each_once(parts, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        laws.paper(parts=parts)


def test_commands_name_parts_and_the_option_that_is_wrong(capsys):
    assert main(["paper", "--resume", "nofile.nc"]) == 2
    assert "Option --resume must name an existing file" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["paper", "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert [part for part in PARTS if part not in text.split("--parts")[1].split("[all]")[0]] == []
    assert main(["width", "--chance", "1", "--dry-run"]) == 2
    assert "must be below 1" in capsys.readouterr().err


def test_an_interruption_is_heard_between_predictions_and_fits(monkeypatch):
    """Each loop looks for a signal before every prediction, every row of the grid, and every refinement."""
    problem = Problem(activation="he4", teacher=Teacher.power_law(3, 1.0), width=3, dimension=64)
    m, n = (axis.ravel() for axis in np.meshgrid([4.0, 8.0, 16.0], [10.0, 100.0, 1000.0]))
    for module, work, count in (
        (scaffold, lambda: scaffold.common_times([problem] * 3, 4), 3),
        (surface, lambda: laws.fit_surface({"width": m, "samples": n, "loss": 1.0 / m + 1.0 / n}, bootstrap=0), 20),
    ):
        asked = []
        monkeypatch.setattr(module, "stop_if_heard", lambda asked=asked: asked.append(True))
        work()
        assert len(asked) >= count


def test_claims_of_closed_forms_have_the_accepted_numbers():
    """Shares of search at d = 10^4; the pull of two links at .4, .481473, printed as .6146; a sum misfits a maximum."""
    found = laws.paper(parts=["shares", "gradient", "surface", "layerwise"], progress=False)
    measured = found.measured.to_series()
    assert measured[["search-k2", "search-k3", "search-k4"]].tolist() == pytest.approx([0.38, 0.911, 0.997], abs=1e-3)
    assert found.claim_y.sel(claim="search-k3")[:3].values == pytest.approx([0.428, 0.753, 0.911], abs=1e-3)
    assert measured["gradient"] == pytest.approx(0.481473, abs=1e-6)
    assert float(found.claimed.sel(claim="gradient")) == pytest.approx(0.6146, abs=1e-4)
    assert measured["surface-max"] == pytest.approx(0.6, abs=1e-6)
    assert measured["surface-sum"] > 0.65
    assert measured["layerwise-chance"] == pytest.approx(0.514, abs=1e-3)
    verdicts = found.claim_verdict.to_series()
    assert verdicts[["search-k2", "gradient", "search-k3"]].tolist() == [SIZE, MISPRINTED, HOLDS]
    assert set(verdicts) <= set(VERDICTS)


def test_an_interrupted_report_goes_on_with_the_parts_that_are_left(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    first = laws.paper(parts=["minimax", "edge"], progress=False)
    dynamics.save(first, "first.nc")
    command = ["paper", "--parts", "minimax,edge,composition", "--resume", "first.nc", "--page", "paper.html"]
    assert main([*command, "--output", "paper.nc"]) == 0
    assert "6 claims: " in capsys.readouterr().out
    whole = dynamics.load("paper.nc")
    assert whole.claim.values.tolist()[:4] == first.claim.values.tolist()
    np.testing.assert_array_equal(whole.part_seconds[:4], first.part_seconds)
    np.testing.assert_array_equal(whole.claim_y[:4], first.claim_y)
    page = (tmp_path / "paper.html").read_text(encoding="utf-8")
    assert "at most k^4 N^6 samples" in page
    assert "data:image" in page
    assert main([*command, "--output", "paper.nc"]) == 2  # nothing is overwritten
    assert main(["paper", "--parts", "minimax", "--page", "x.png", "--plot", "x.png"]) == 2
    assert main(["paper", "--parts", "minimal"]) == 2
    assert "Did you mean 'minimax'?" in capsys.readouterr().err
    with pytest.raises(ValueError, match="report of seed 1"):
        laws.paper(parts=["minimax"], resume=first, seed=1)
    with pytest.raises(ValueError, match=r"must be a report of laws\.paper"):
        laws.paper(resume=laws.composition(progress=False))


def test_a_part_that_is_interrupted_keeps_those_before_it(monkeypatch):
    def stops(_seed):
        raise KeyboardInterrupt

    monkeypatch.setitem(PARTS, "width", (stops, ""))
    with pytest.raises(dynamics.SolveInterrupted) as stopped:
        laws.paper(parts=["minimax", "width", "edge"], progress=False)
    kept = stopped.value.dataset
    assert set(kept.part.values.tolist()) == {"minimax"}
    whole = laws.paper(parts=["minimax", "edge"], resume=kept, progress=False)
    assert set(whole.part.values.tolist()) == {"minimax", "edge"}
    with pytest.raises(KeyboardInterrupt):
        laws.paper(parts=["width"], progress=False)


@pytest.mark.long
def test_all_claims_have_numbers():
    found = laws.paper(progress=False)
    assert found.sizes["claim"] >= 28
    assert np.isfinite(found.measured).all()
    assert np.isfinite(found.claim_y.sel(claim=list(SCALING))).any("point").all()
    assert float(found.part_seconds.max()) < 300.0
