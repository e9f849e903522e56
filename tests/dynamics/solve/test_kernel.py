"""What a kernel learns as a dataset: its parts, samples to levels, pages, the command, and what is refused."""

import json

import numpy as np
import pytest

import dynamics
from dynamics import lazy_kernel
from dynamics.problem import Teacher
from dynamics.report.findings import find_findings
from dynamics.report.flows import kernel_in_words, kernel_rows
from dynamics.solve import __main__ as solve
from dynamics.solve.kernel import with_kernel

RELU = {"dimension": 24, "student": "relu"}


def predicted(link="he4", **options):
    return dynamics.predict_kernel(link, **{**RELU, **options})


@pytest.mark.parametrize(
    "options", [{}, {"noise": 0.3}, {"protocol": "ridge"}, {"protocol": "ridge", "kernel": "features"}]
)
def test_the_error_is_the_sum_of_its_degrees(options):
    found = predicted(samples=[1, 300, 20_000], **options)
    np.testing.assert_allclose(found.degree_error.sum("degree"), found.test_error, rtol=2e-2)
    assert (found.degree_error.sum("degree") <= found.test_error * (1 + 1e-12)).all()
    assert found.teacher_by_degree.values[[1, 3, 5]].tolist() == [0.0, 0.0, 0.0]
    single = predicted(samples=300, **options)
    assert single.test_error.dims == ()
    assert float(single.test_error) == pytest.approx(float(found.test_error[1]), rel=1e-6)


@pytest.mark.parametrize(
    "options", [{}, {"protocol": "ridge"}, {"protocol": "ridge", "kernel": "features", "width": 4000}]
)
def test_levels_are_reached_at_their_samples(options):
    found = predicted("he2", **options)
    whole = float(found.teacher_by_degree.sum())
    for level, count in zip(found.loss_level.values, found.samples_to_level.values, strict=True):
        if np.isfinite(count):
            at = (
                predicted("he2", samples=[max(round(0.99 * count), 1), round(1.01 * count)], **options).test_error
                / whole
            )
            assert at[0] > level > at[1]
    assert 20 < found.sizes["samples"] <= 40
    assert float(found.samples[-1]) == pytest.approx(
        2.0 * found.samples_to_level.values[np.isfinite(found.samples_to_level)].max(), rel=0.05
    )


def test_degrees_that_the_kernel_does_not_see_are_never_learned():
    found = predicted("he3", samples=[10**6])
    assert np.isinf(found.samples_to_level).all()
    assert np.isinf(found.degree_samples[3])
    assert found.attrs["lost_error"] == pytest.approx(float(found.teacher_by_degree[3]))
    sentences = " ".join(find_findings(found).lines())
    assert "0.5: never; 0.1: never" in sentences
    assert f"does not see {found.attrs['lost_error']:.3g} of E f*²" in sentences
    # Noise leaves a floor, above which there are levels.
    noisy = predicted("he4", noise=1.0)
    x = 0.4
    assert noisy.attrs["error_floor"] == pytest.approx(x / (1.0 - x), rel=1e-9)
    assert np.isinf(noisy.samples_to_level).all()


def test_a_problem_has_its_link_its_noise_and_its_teacher():
    teacher = Teacher.power_law(3, 1.0)
    problem = dynamics.Problem(activation="he4", teacher=teacher, width=8, dimension=24, label_noise=0.2)
    found, same = (
        dynamics.predict_kernel(problem, samples=[50]),
        predicted("he4", student="he4", noise=0.2, samples=[50]),
    )
    assert found.attrs["kernel_link"] == "he4"
    assert found.attrs["learning_rate"] == pytest.approx(same.attrs["learning_rate"])
    assert dynamics.Problem.from_dataset(found) == problem
    assert dynamics.predict_kernel(problem, student="relu", samples=[50]).attrs["kernel_link"] == "relu"
    staircase = dynamics.Problem(
        student=dynamics.Student(activation="relu", width=8), teacher=Teacher.polynomial("x1*x2 + x1"), dimension=24
    )
    parts = dynamics.predict_kernel(staircase, samples=[50]).teacher_by_degree.values
    assert parts[:3] == pytest.approx([0.0, 1.0, 24 / 26])  # E x1² x2² = d/(d + 2) on the sphere


def test_files_figures_and_pages(tmp_path):
    for at, options in enumerate(({}, {"protocol": "flow", "samples": [100, 1000]}, {"samples": 10},
                                  {"protocol": "ridge", "kernel": "features", "width": 50})):  # fmt: skip
        found = predicted(**options)
        path = tmp_path / f"{at}.nc"
        dynamics.save(found, path)
        again = dynamics.load(path)
        assert again.identical(found) or set(again.data_vars) == set(found.data_vars)
        findings = find_findings(again)
        assert "uniform on |x| = √d" in "\n".join(findings.lines())
        assert findings.drawn("screen").axes[0].get_xlabel() == (
            "flow time $t$" if "time" in again.dims else "samples $n$"
        )
        json.loads(findings.as_json({}))
        assert len(dynamics.to_table(again)) == again.test_error.size
    page = dynamics.write_report(predicted(), tmp_path / "page.html")
    assert "Kernel &#x27;ntk&#x27; of relu" in page.read_text() or "Kernel 'ntk' of relu" in page.read_text()


def test_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert lazy_kernel.main(["he4", "--dimension", "24", "--activation", "relu", "--label-noise", "0.1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    stored = dynamics.load(tmp_path / "kernel.nc")
    assert told["levels"][0]["samples"] == pytest.approx(float(stored.samples_to_level[0]))
    assert (tmp_path / "kernel.png").exists()
    assert float(stored.samples_to_level[0]) == pytest.approx(float(predicted(noise=0.1).samples_to_level[0]))
    assert lazy_kernel.main(["he2", "--dimension", "9", "--protocol", "flow", "--samples", "30", "--no-plot"]) == 0
    assert "gradient flow on n samples" in capsys.readouterr().out
    for words, sentence in (
        (["he4"], "Option --dimension must be given, but is absent."),
        (
            ["he4", "--dimension", "9", "--ridge", "1"],
            "Option --ridge must be absent for the protocol 'online', but is 1.0.",
        ),
        (
            ["he4", "--dimension", "9", "--activation", "sign"],
            "Option --kernel must be 'features' for a link with jumps, where its slope is infinite, but is 'ntk' for sign.",
        ),
        (
            ["blub", "--dimension", "9"],
            "Argument LINK must be a formula, but contains the name 'blub', which is not z, x, pi or e.",
        ),
    ):
        assert lazy_kernel.main(words) == 2
        assert capsys.readouterr().err == f"error: {sentence}\n"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"width": 5, "kernel": "features", "protocol": "ridge", "inputs": "gaussian"}, "`width` must be absent for Gaussian inputs, but is 5"),
        ({"inputs": "gaussian"}, "`protocol` must be 'ridge' or 'flow' for Gaussian inputs, whose K.x, x. varies, but is 'online'"),
        ({"width": 5}, "`width` must be absent unless `kernel` is 'features' and `protocol` is 'ridge', but is 5"),
        ({"learning_rate": "1.2x"}, r"`learning_rate` must be below 2/K\(1\) = 2, but is 2.4"),
        ({"learning_rate": "fast"}, r"`learning_rate` must be a positive number, or a share of 2/K\(1\) such as '0.4x', but is 'fast'"),
        ({"learning_rate": 0.1, "protocol": "ridge"}, "`learning_rate` must be absent for the protocol 'ridge', but is 0.1"),
        ({"times": [1.0]}, r"`times` must be absent for the protocol 'online', but is \[1.0\]"),
        ({"samples": []}, "`samples` must hold at least one number, but is empty"),
        ({"samples": [0]}, "`samples` must be at least 1, but is 0"),
        ({"dimension": 1}, "`dimension` must be at least 2, but is 1"),
        ({"protocol": "sgd"}, "`protocol` must be one of 'online', 'ridge', 'flow', but is 'sgd'"),
        ({"student": "sign"}, "`kernel` must be 'features' for a link with jumps, where its slope is infinite, but is 'ntk' for sign"),
        ({"noise": 1e200}, r"`noise` must be at most 1e\+100, but is 1e\+200"),
        ({"ridge": 1e300, "protocol": "ridge"}, r"`ridge` must be at most 1e\+100, but is 1e\+300"),
        ({"noise": -1.0}, "`noise` must be finite and at least 0, but is -1.0"),
    ],
)  # fmt: skip
def test_refusals(options, sentence):
    with pytest.raises(ValueError, match=f"^Argument {sentence}"):
        predicted(**options)


def test_refused_problems():
    def problem(**options):
        return dynamics.Problem(
            **{"activation": "he4", "teacher": Teacher([1.0]), "width": 2, "dimension": 8, **options}
        )

    with pytest.raises(ValueError, match="must have `inputs` None for a kernel"):
        dynamics.predict_kernel(problem(inputs=dynamics.Inputs.power_law(0.5)))
    biased = dynamics.Student(activation="relu", width=2, biases="trained")
    network = dynamics.Problem(student=biased, teacher=Teacher([1.0]), dimension=8)
    with pytest.raises(ValueError, match="without biases, which are outside the kernel, but has trained ones"):
        dynamics.predict_kernel(network)
    assert dynamics.predict_kernel(network, student="relu", samples=5).attrs["kernel_link"] == "relu"
    with pytest.raises(ValueError, match="`dimension` must be absent where a Problem is given, but is 8"):
        dynamics.predict_kernel(problem(), dimension=8)
    with pytest.raises(TypeError, match="`dimension` must be given for a link, but is absent"):
        dynamics.predict_kernel("he4")
    with pytest.raises(TypeError, match="`samples` must be given for the flow"):
        predicted(protocol="flow")
    polynomial = dynamics.Problem(
        student=dynamics.Student(activation="relu", width=2), teacher=Teacher.polynomial("x1*x2"), dimension=8
    )
    with pytest.raises(ValueError, match="`inputs` must be 'sphere' for a teacher that is a polynomial"):
        dynamics.predict_kernel(polynomial, inputs="gaussian", protocol="ridge")


def test_a_kernel_beside_the_network(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["--model", "decoupled", "--k", "4", "--coefficients", "0.8,0.6", "--width", "8", "--dimension", "64"]
    assert solve.main([*words, "--kernel", "ntk", "--output", "run.nc", "--json", "--no-progress"]) == 0
    rows = json.loads(capsys.readouterr().out)["kernel"]
    answer = dynamics.load("run.nc")
    problem = dynamics.Problem.from_dataset(answer)
    alone = dynamics.predict_kernel(problem)
    np.testing.assert_allclose(answer.kernel_error, alone.test_error, rtol=1e-12)
    assert [row["kernel"] for row in rows] == pytest.approx(alone.samples_to_level.values.tolist())
    half, rate = rows[0], dynamics.learning_rate_limit(problem) / 10.0
    passed = float(answer.time.values[answer.loss.values <= 0.5 * answer.loss.values[0]][0])
    assert half["sgd"] == pytest.approx(passed / rate, rel=0.1)
    assert half["ratio"] == pytest.approx(half["kernel"] / half["sgd"])
    text = "\n".join(find_findings(answer).lines())
    assert "Beside it the kernel 'ntk' of he4, online at learning rate 0.16, inputs uniform on the sphere" in text
    assert "SGD needs 2." in text
    assert "times fewer samples than the kernel" in text
    ax = dynamics.plot_loss(answer, x="samples", learning_rate=rate)
    (line,) = [each for each in ax.lines if each.get_label().startswith("kernel")]
    np.testing.assert_allclose(line.get_xdata(), alone.samples, rtol=1e-9)
    never = answer.assign_attrs(kernel_levels=json.dumps({"0.5": None, "0.1": None}))
    assert "the kernel never gets there" in "\n".join(find_findings(never).lines())


def test_a_kernel_beside_a_network_of_its_own_layers(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["--teacher", "x1", "--activation", "h1+h2", "--width", "2", "--dimension", "16", "--t-max", "40"]
    assert solve.main([*words, "--kernel", "ntk", "--output", "run.nc", "--no-progress"]) == 0
    assert "Samples of SGD and of a kernel" in [
        table.caption for table in find_findings(dynamics.load("run.nc")).tables
    ]
    assert "Beside it the kernel 'ntk'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--spectrum", "0.5"], "The problem must have --spectrum None for a kernel, but has Inputs.power_law(alpha=0.5), which is not known there."),
        (["--model", "quadratic"], "Option --kernel must be absent for --model quadratic, but is ntk."),
        (["--method", "gradient-descent", "--learning-rate", "0.1x"], "Option --kernel must be absent for --method gradient-descent, which draws no samples, but is given."),
        (["--activation", "relu", "--teacher", "x1", "--biases", "trained"], "The problem must have a network without biases, which are outside the kernel, but has trained ones; a link that is given as student has none."),
    ],
)  # fmt: skip
def test_a_kernel_beside_the_network_is_refused(words, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert solve.main([*words, "--kernel", "ntk", "--no-progress"]) == 2
    assert capsys.readouterr().err == f"error: {sentence}\n"
    assert not list(tmp_path.iterdir())


def test_a_kernel_beyond_any_number_of_samples_is_not_one_that_never_learns():
    """In 1e7 dimensions degree 3 takes some 1e20 samples, more than are looked at."""
    far = dynamics.Problem(activation="he3", teacher=Teacher([1.0]), width=1, dimension=10**7)
    answer = with_kernel(dynamics.solve_decoupled(far), "ntk")
    rows = kernel_rows(answer)
    assert all(np.isnan(row["kernel"]) for row in rows)
    assert np.isfinite(rows[0]["sgd"])
    assert "The kernel needs more than 1e+18 samples until half of its error is left." in kernel_in_words(answer)
