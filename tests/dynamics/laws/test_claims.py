"""Claims of the founding paper: accepted numbers, exact laws, and draws."""

import numpy as np
import pytest
import xarray as xr
from scipy.integrate import solve_ivp

import dynamics
from dynamics import Problem, SaveAt, Teacher, laws
from dynamics.laws.__main__ import main
from dynamics.laws.theorem import sentence


@pytest.mark.parametrize(
    ("dimension", "delta_b", "delta_c", "leading"), [(1024, 0.550, 39.3, 41.7), (16384, 0.043, 10.4, 10.7)]
)
def test_the_bounds_of_the_theorem_are_the_accepted_numbers(dimension, delta_b, delta_c, leading):
    """P = 4, m = 12, beta = 1, 1500 saved times, of which one step changes Delta_c by .9 and Delta_b by .015."""
    bounds = laws.theorem_study(dimensions=[dimension], progress=False).isel(dimension=0, start=0)
    assert bounds.delta_b.item() == pytest.approx(delta_b, abs=0.015)
    assert bounds.delta_c.item() == pytest.approx(delta_c, abs=0.2)
    assert bounds.delta_c_leading_order.item() == pytest.approx(leading, abs=0.05)


def test_the_bounds_by_direction_are_those_of_the_flow():
    problem = Problem(activation="he4", teacher=Teacher.power_law(3, 1.0), width=2, dimension=256, seed=2)
    flow = dynamics.solve_overlaps(problem, save_at=SaveAt.geometric(0.1, 800.0, 1000), progress=False)
    bounds = dynamics.check_theorem(flow)
    p = int(np.flatnonzero(flow.matched_neuron.values >= 0)[0])
    neuron, time = int(flow.matched_neuron[p]), flow.time.values
    squared = flow.teacher_overlap.values[:, neuron, p] ** 2
    last_bad = time[
        np.flatnonzero(
            (squared < 0.9)
            | (np.abs(flow.squared_norm.values[:, neuron] / flow.teacher_coefficient.values[p] - 1.0) > 0.1)
        )[-1]
    ]
    leading = flow.leading_order_time.values[p]
    at = np.searchsorted(time, last_bad) + 1
    expected = 4.0 * (time[at] / leading - 1.0) if at < time.size else np.inf
    assert bounds.delta_b_of_direction[p].item() == pytest.approx(expected)
    assert np.isnan(bounds.delta_b_of_direction.values[flow.matched_neuron.values < 0]).all()
    other = np.delete(flow.teacher_overlap.values[:, :, p] ** 2, neuron, axis=1)
    assert bounds.irrelevant_before[p].item() == other[time <= leading].max()
    matched = int(np.count_nonzero(flow.matched_neuron.values >= 0))
    assert matched < 3
    assert f"part (c) does not hold for the {matched} matched directions of 3 at d = 256" in bounds.sentence
    with pytest.raises(ValueError, match="all overlaps"):
        dynamics.check_theorem(flow.drop_vars("teacher_overlap"))


TWO = Problem(activation="he4", teacher=Teacher.power_law(2, 1.0), width=6, dimension=256)


def bounds_of(last, count=1000, problem=TWO):
    flow = dynamics.solve_overlaps(problem, save_at=SaveAt.geometric(0.1, last, count), progress=False)
    return flow, dynamics.check_theorem(flow)


@pytest.mark.parametrize("share", [0.1, 0.99])
def test_a_flow_that_ends_before_the_emergence_times_measures_no_bound(share):
    """Its end is before the T_p of the slower direction alone, so that the faster one is measured at .99."""
    whole, bounds = bounds_of(400.0)
    _, early = bounds_of(share * float(whole.leading_order_time.max()))
    slow = int(np.argmax(whole.leading_order_time.values))
    for name in ("delta_b", "delta_c"):
        by_direction = early[f"{name}_of_direction"].values
        assert np.isnan(by_direction[slow])
        assert np.isnan(early[name])
        part = name[-1]
        assert f"art ({part}) is not measured at d = 256, as the flow ends too early" in early.sentence
        assert f"art ({part}) does not hold" not in early.sentence
    assert np.isfinite(early.delta_c_of_direction.values[1 - slow]) == (share == 0.99)
    assert "is not measured" in str(dynamics.summary(early))
    assert dynamics.plot(early).axes
    assert np.isfinite([bounds.delta_b, bounds.delta_c]).all()


def test_a_direction_that_is_not_learned_yet_has_no_bound_b():
    """Between T_p and 5/4 T_p a flow without t_b does not say whether Δ_b is below 1; later it says that it is not."""
    whole, bounds = bounds_of(400.0)
    slow, leading = int(np.argmax(whole.leading_order_time.values)), float(whole.leading_order_time.max())
    assert bounds.delta_b_of_direction[slow] > 0.0
    _, early = bounds_of(leading * (1.0 + 0.2 * float(bounds.delta_b_of_direction[slow])))
    assert np.isnan(early.delta_b_of_direction.values[slow])
    assert early.delta_c.item() == pytest.approx(bounds.delta_c.item(), abs=1.0)


@pytest.mark.parametrize("count", [20, 100, 1000])
def test_the_bound_of_part_c_is_known_to_its_resolution(count):
    _, bounds = bounds_of(400.0, count)
    _, fine = bounds_of(400.0, 8000)
    ratio = 4000.0 ** (1.0 / (count - 1))
    resolution = bounds.delta_c_resolution.item()
    assert 256.0 * (1.0 - 1.0 / ratio) <= resolution <= 256.0 * (ratio - 1.0)
    assert abs(bounds.delta_c.item() - fine.delta_c.item()) <= resolution
    assert f"(Delta_c = {bounds.delta_c.item():.3g}, known to {resolution:.2g})" in bounds.sentence


def test_a_bound_within_its_resolution_is_open():
    values = {"delta_b": 0.5, "delta_c": 1.5, "delta_c_resolution": 0.9}
    assert sentence(TWO, values, 2) == (
        "Part (b) holds at d = 256 (Delta_b = 0.5); part (c) is open at these saved times at d = 256 "
        "(Delta_c = 1.5, known to 0.9)."
    )
    assert "part (c) does not hold" in sentence(TWO, values | {"delta_c": 2.0}, 2)
    assert "Part (b) holds for the 1 matched directions of 2 at d" in sentence(TWO, values, 1)


@pytest.mark.parametrize("k", [3, 4, 5])
def test_layerwise_chances_are_shares_of_the_correlation_flow(k):
    """Its winners are argmax a_p |C_p|^(k-2), and shares of 20 000 draws are within 4.5 errors (false alarms 1e-4)."""
    a, rng = Teacher.power_law(6, 1.0).coefficients, np.random.default_rng(k)
    chances = laws.layerwise_chances(Teacher(a), f"he{k}")
    strength = rng.standard_normal((20_000, 6))
    strength = np.maximum(strength, 0.0) if k % 2 else np.abs(strength)
    won = strength.max(axis=1) > 0.0
    winners = np.argmax(a * strength ** (k - 2), axis=1)[won]
    shares = np.bincount(winners, minlength=6) / 20_000
    assert (np.abs(shares - chances) < 4.5 * np.sqrt(chances * (1.0 - chances) / 20_000)).all()
    for _ in range(20):
        C = 0.2 * rng.standard_normal(6)
        seen = np.maximum(C, 0.0) if k % 2 else np.abs(C)
        if seen.max() == 0.0:
            continue

        def motion(_, C):
            return k * (a * C ** (k - 1) - C * np.sum(a * C**k))

        end = solve_ivp(motion, (0.0, 1e5), C, method="LSODA", rtol=1e-8, atol=1e-12).y[:, -1]
        assert np.argmax(end**2) == np.argmax(a * seen ** (k - 2))


def test_layerwise_numbers_are_the_accepted_ones():
    assert laws.layerwise_chances(Teacher.power_law(16, 1.0))[-1] == pytest.approx(0.003717, abs=1e-6)
    assert laws.layerwise_loss(Teacher.power_law(1024, 1.0), [16, 256]) == pytest.approx([0.1240, 0.0364], abs=5e-5)
    for beta, k, exponent in [(1.0, 4, 0.514), (0.8, 4, 0.456), (1.0, 6, 0.336)]:
        q = -np.log(laws.layerwise_chances(Teacher.power_law(1024, beta), f"he{k}"))
        assert np.log(q[1023] / q[255]) / np.log(4.0) == pytest.approx(exponent, abs=1e-3)
    with pytest.raises(ValueError, match="information exponent"):
        laws.layerwise_chances(Teacher([1.0]), "he2")


def test_the_width_that_matches_the_first_directions():
    """P = 256, chance .95: accepted 17 and 27, each known to 12 %."""
    teacher = Teacher.power_law(256, 1.0)
    for top, width in [(4, 17), (8, 27)]:
        found = laws.width_for(teacher, top=top, draws=300)
        assert abs(found.neurons / width - 1.0) <= 0.12
        assert found.chance_low < found.chance < found.chance_high
        assert found.chance >= 0.95
    assert laws.width_for(Teacher([1.0]), top=1, link="he3", draws=2000).neurons == 5  # 1 - 2^-5 = .969, 2^-4: .9375
    with pytest.raises(ValueError, match="top"):
        laws.width_for(teacher, top=257)


def test_directions_decouple_as_the_dimension_grows():
    """Accepted at gamma = 1/2, d = 64 and 256: 1.24 and 1.07, shares .35 and .09; errors over six starts .09, .02."""
    found = laws.decoupling(dimensions=[64, 256], progress=False)
    ratio = found.time_ratio.mean("start").values
    assert ratio == pytest.approx([1.24, 1.07], abs=0.12)
    assert found.taken_share.mean("start").values == pytest.approx([0.35, 0.09], abs=0.03)
    assert found.directions_at_dimension.values.tolist() == [8, 16]
    assert not found.unlearned_share.any()


SIZES = np.geomspace(1e7, 1e10, 12), np.geomspace(1e9, 1e12, 10)


def surface(form, parameters, sizes=SIZES, noise=0.0):
    E, A, alpha, B, beta = parameters
    m, n = (axis.ravel() for axis in np.meshgrid(*sizes))
    width, samples = A / m**alpha, B / n**beta
    loss = E + (width + samples if form == "sum" else np.maximum(width, samples))
    return {"width": m, "samples": n, "loss": loss * np.exp(noise * np.random.default_rng(1).standard_normal(m.size))}


@pytest.mark.parametrize(
    ("form", "parameters", "sizes"),
    [
        ("sum", (1.69, 406.4, 0.34, 410.7, 0.28), SIZES),
        ("max", (0.0, 1.0, 0.6, 1.0, 0.75), (np.geomspace(4, 1024, 9), np.geomspace(10, 1e5, 11))),
        ("max", (0.01, 3.0, 1.0, 20.0, 0.5), (np.geomspace(4, 1024, 9), np.geomspace(1e3, 1e7, 11))),
    ],
)
def test_surfaces_without_noise_are_found_exactly(form, parameters, sizes):
    fit = dynamics.fit_surface(surface(form, parameters, sizes), form, bootstrap=0)
    assert fit.fitted.values == pytest.approx(parameters, rel=1e-6, abs=1e-9)
    assert fit.residual.item() < 1e-8


def test_errors_of_a_fit_are_its_scatter():
    """Noise of .5 % at 120 points: exponents within four of their errors, which are those of fits to other draws."""
    truth = (1.69, 406.4, 0.34, 410.7, 0.28)
    fit = dynamics.fit_surface(surface("sum", truth, noise=0.005), bootstrap=60, progress=False)
    error = fit.fitted_error.values[[2, 4]]
    assert (np.abs(fit.fitted.values[[2, 4]] - [0.34, 0.28]) < 4.0 * error).all()
    assert ((error > 0.002) & (error < 0.008)).all()


def test_a_table_is_read_from_a_file_and_both_forms_are_told(tmp_path, capsys):
    table = surface("max", (0.0, 2.0, 0.6, 30.0, 0.5), ([8, 16, 32, 64], np.geomspace(1e3, 1e7, 9)))
    rows = np.stack([table[name] for name in ("width", "samples", "loss")], axis=1)
    np.savetxt(tmp_path / "runs.csv", rows, delimiter=",", header="width,samples,loss", comments="", fmt="%.17g")
    output = tmp_path / "fit.nc"
    command = ["fit", str(tmp_path / "runs.csv"), "--bootstrap", "3", "--output", str(output)]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "The form 'max' has the smallest." in said
    fits = dynamics.load(output)
    assert fits.fitted.sel(form="max", parameter="width_exponent").item() == pytest.approx(0.6)
    assert output.with_suffix(".png").exists()
    assert dynamics.plot(fits).axes
    assert main(["fit", str(tmp_path / "none.csv")]) == 2
    assert "must name a file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"width": [1.0], "loss": [1.0]}, "no samples"),
        ({"width": [1.0] * 9, "samples": range(1, 10), "loss": [1.0] * 9}, "3 widths"),
        ({"width": [-1.0] * 9, "samples": range(1, 10), "loss": [1.0] * 9}, "positive"),
        ({"width": [1.0] * 9, "samples": range(1, 9), "loss": [1.0] * 9}, "one length"),
        (
            {"width": [1e200, 2e200, 3e200] * 3, "samples": range(1, 10), "loss": [1.0] * 9},
            r"width .* 1e-30 and 1e\+30",
        ),
        ({"width": [1.0] * 9, "samples": range(1, 10), "loss": [1e-40] * 9}, "Column loss .* between 1e-30"),
        (
            {"width": ["a"] * 9, "samples": range(1, 10), "loss": [1.0] * 9},
            r"`table\['width'\]` must be an array of real",
        ),
        (
            {"width": [1.0] * 9, "samples": range(1, 10), "loss": [1j] * 9},
            r"`table\['loss'\]` must be an array of real",
        ),
        (xr.Dataset(coords={"width": [1.0, 2.0, 3.0], "time": [1.0, 2.0, 3.0]}), "but has no loss.$"),
        (xr.Dataset(coords={"time": [1.0, 2.0, 3.0]}), "but has no width and no loss.$"),
    ],
)
def test_tables_that_hold_no_surface_are_refused(table, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence):
        dynamics.fit_surface(table)


@pytest.mark.parametrize(
    "content", [b"", b"width,samples,loss\n1,2,3\n1,2,3,4\n", b"width,samples,loss\na,b,c\n", b"\xc3\x28"]
)
def test_a_file_that_is_no_table_is_refused_in_a_sentence(content, tmp_path, capsys):
    path = tmp_path / "runs.csv"
    path.write_bytes(content)
    assert main(["fit", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: Argument `table` must name a CSV of numbers below their names, but ")


def test_a_sweep_over_widths_is_a_table():
    problem = Problem(activation="he4", teacher=Teacher.power_law(8, 1.0), width=4, dimension=64)
    widths = [8, 16, 32]
    times = SaveAt.geometric(0.5, 20.0, 12)
    losses = dynamics.sweep(problem, {"width": widths}, options={"save_at": times}, workers=1, progress=False)
    fit = dynamics.fit_surface(losses, bootstrap=0)
    assert fit.sizes["row"] == 3 * 12


def loss_over_times():
    """Return a dataset with the loss 2/m + 30/n^.5, times 0.9 and 1.1 at two seeds, over widths and times."""
    m, n, seeds = np.array([8.0, 16.0, 32.0, 64.0]), np.geomspace(10.0, 1e5, 9), np.array([0.9, 1.1])
    loss = xr.DataArray(2.0 / m, {"width": m}) + xr.DataArray(30.0 / n**0.5, {"time": n})
    start = loss.isel(time=0).assign_coords(time=0.0)
    by_seed = xr.concat([start, loss], "time") * xr.DataArray(seeds, {"seed": [0, 1]})
    return by_seed.to_dataset(name="loss")


@pytest.mark.parametrize("dims", [1, 2])
def test_the_start_at_time_zero_is_no_row_and_seeds_are_averaged(dims):
    table = loss_over_times()
    # A sweep over starts of runs with several seeds of samples has both dims.
    table = table if dims == 1 else table * xr.DataArray([0.5, 1.5], dims="point_seed")
    fit = dynamics.fit_surface(table, bootstrap=0)
    assert fit.sizes["row"] == 4 * 9
    assert fit.fitted.values == pytest.approx([0.0, 2.0, 1.0, 30.0, 0.5], rel=1e-6, abs=1e-9)
    assert fit.notes == ""


def test_times_that_differ_by_point_are_samples():
    """Times of width m end at 1e5/m, so that a fit that took one row of times for all widths would be off."""
    table = loss_over_times().isel(seed=0, drop=True)
    times = xr.DataArray(np.r_[0.0, np.geomspace(10.0, 1e5, 9)], dims="time_index") * 8.0 / table.width
    loss = xr.where(times > 0.0, 2.0 / table.width + 30.0 / np.maximum(times, 1e-9) ** 0.5, 2.0)
    fit = dynamics.fit_surface(xr.Dataset({"loss": loss, "time": times}), bootstrap=0)
    assert fit.sizes["row"] == 4 * 9
    assert fit.fitted.values == pytest.approx([0.0, 2.0, 1.0, 30.0, 0.5], rel=1e-6, abs=1e-9)


def test_a_sweep_with_its_default_times_is_a_table():
    problem = Problem(activation="he4", teacher=Teacher.power_law(2, 1.0), width=4, dimension=64)
    losses = dynamics.sweep(problem, {"width": [8, 12, 16]}, workers=1, progress=False)
    fit = dynamics.fit_surface(losses, bootstrap=0)
    rows = losses[["width", "time", "loss"]].to_dataframe().reset_index().query("time > 0")
    expected = dynamics.fit_surface({"width": rows.width, "samples": rows.time, "loss": rows.loss}, bootstrap=0)
    assert np.array_equal(np.sort(fit.samples), np.sort(expected.samples))
    assert fit.residual.item() == pytest.approx(expected.residual.item(), rel=1e-6)


@pytest.mark.parametrize("dim", ["dimension", "beta"])
def test_a_loss_over_another_dim_is_not_averaged(dim):
    table = loss_over_times().expand_dims({dim: [64, 128]})
    with pytest.raises(ValueError, match=f"but its loss is also over {dim}: select one value of it.$"):
        dynamics.fit_surface(table, bootstrap=0)
    by_point = table.assign(time=table.time * xr.DataArray([1, 2], dims=dim)).rename_dims(time="time_index")
    with pytest.raises(ValueError, match=f"but its loss is also over {dim}: select"):
        dynamics.fit_surface(by_point, bootstrap=0)
    assert dynamics.fit_surface(table.isel({dim: 0}), bootstrap=0).sizes["row"] == 4 * 9


def test_an_exponent_at_its_bound_is_told():
    """A loss that is larger at the first width alone falls faster than any power of m that a fit may take."""
    m, n = (axis.ravel() for axis in np.meshgrid(np.geomspace(4, 16, 8), np.geomspace(1e3, 1e7, 9)))
    table = {"width": m, "samples": n, "loss": np.where(m == m.min(), 5.0, 1.0) + 30.0 / n**0.5}
    fits = laws.surface_fits(table=table, bootstrap=0, progress=False)
    sentence = "The fit by 'sum' has width exponent at its bound 20, so that the table does not determine it."
    assert fits.fitted.sel(form="sum", parameter="width_exponent").item() == pytest.approx(20.0, rel=0.01)
    assert sentence in fits.notes
    assert sentence in str(dynamics.summary(fits))


POWER = Teacher.power_law(8, 1.0)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: laws.theorem_study(width="top:²"), "must be a number or 'top:COUNT', but is 'top:²'"),
        (lambda: laws.layerwise_loss(POWER, "abc"), "`widths` must be an array of real numbers"),
        (lambda: laws.layerwise_loss(POWER, [2.5]), "`widths` must hold integers of at least 1, but is"),
        (lambda: laws.layerwise_loss(POWER, [np.inf]), "`widths` must hold integers of at least 1, but is"),
        (lambda: laws.minimax_loss("a", 1.0), "`samples` must be an array of real numbers"),
        (lambda: laws.composition_bounds(64, 512), "must have bounds below 1e308, but are 64 and 512"),
        (lambda: laws.construct_composition(200, 64, 5.0, draws=10**4), "`draws` must leave room in memory"),
        (lambda: laws.construct_composition(10**9, 2**20, 5.0), "`draws` must leave room in memory"),
        (lambda: laws.hop_samples(64, 64, rows=10**9), "`rows` must leave room in memory"),
        (lambda: laws.layerwise_chances(Teacher.polynomial("x1 + x1*x2")), "must have directions, but is a polynomial"),
        (lambda: laws.width_for(Teacher.polynomial("x1 + x2"), top=1), "must have directions, but is a polynomial"),
        (lambda: laws.width_study(chance=1.0), "`chance` must be below 1"),
    ],
)
def test_wrong_inputs_are_refused_in_a_sentence(call, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        call()


def test_the_largest_bounds_are_finite():
    bounds = laws.composition_bounds(4, 64)
    assert bounds.descent == pytest.approx(256.0**127)
    assert np.isfinite(bounds).all()
