"""Small answers of every kind, and runs that were stopped on their way: what `finished/` and `unfinished/` hold.

`python tests/old_files/make.py FOLDER` writes such files by the present program. Those that are committed were written
before the packages were re-arranged and stay as they are: they show that a newer program can still use old files.

All is asked by public names, so that every version of the program can run this script.
"""

import lzma
import sys
import tempfile
from functools import partial
from pathlib import Path

import dynamics
import sgd_check

AT = dynamics.SaveAt.geometric(0.5, 60.0, 6)
SHORT = dynamics.SaveAt.at([0.0, 0.5, 2.0])
#: Flow time at which solves are stopped, and seconds after which simulations are.
STOP_TIME, STOP_SECONDS = 3.0, 0.03


def problem(**changes):
    given = {"activation": "he4", "teacher": dynamics.Teacher([0.6, 0.4]), "width": 4, "dimension": 12}
    return dynamics.Problem(**given | changes)


def solve(function, asked, **settings):
    return partial(function, asked, save_at=AT, progress=False, **settings)


def simulate(asked, **settings):
    given = {"learning_rate": 2e-3, "steps": 4000, "seeds": 2, "save_at": SHORT, "progress": False}
    return partial(sgd_check.simulate, asked, **given | settings)


def quietly(study, **settings):
    return partial(study, progress=False, **settings)


HE3 = problem(activation="he3")
ONE_DIRECTION = problem(teacher=dynamics.Teacher([1.0]), width=1)
SPHERE = problem(student="spherical")

#: Name -> a run that can be stopped and resumed.
RUNS = {
    "overlaps-explicit": solve(dynamics.solve_overlaps, problem(), method="explicit"),
    "overlaps-stiff": solve(dynamics.solve_overlaps, problem(), method="stiff", keep="summary"),
    "overlaps-bdf": solve(dynamics.solve_overlaps, problem(), method="bdf", rtol=1e-6),
    "gradient-descent": solve(dynamics.solve_overlaps, problem(), method="gradient-descent", learning_rate=0.02),
    "finite-step": solve(dynamics.solve_overlaps, problem(), learning_rate=1e-4, batch_size=4),
    "mean-field": solve(dynamics.solve_mean_field, SPHERE, particles=16, tracers=[[0.3, 0.1], [0.0, 0.2]]),
    "mean-field-homogeneous": solve(dynamics.solve_mean_field, problem(), particles=16, keep="summary"),
    "committee": solve(dynamics.solve_committee, problem(student="committee"), method="bdf", rtol=1e-6),
    "spherical": solve(dynamics.solve_spherical, dynamics.coupled_problem(SPHERE, width=4, seed=1)),
    "simulation": simulate(HE3, steps=10_000, save_at=dynamics.SaveAt.at([0.0, 2.0, 20.0])),
    "simulation-torch": simulate(HE3, engine="torch", device="cpu", steps=1000),
}


def comparison():
    asked = problem(activation="he3", teacher=dynamics.Teacher([1.0]), width=2)
    flow = dynamics.solve_overlaps(asked, save_at=dynamics.SaveAt.geometric(0.1, 10.0, 6), progress=False)
    return sgd_check.compare(flow, simulate(asked, steps=8000, seeds=4)())


#: Name -> an answer that comes in one piece.
ANSWERS = {
    "decoupled": partial(dynamics.solve_decoupled, problem(), save_at=AT),
    "prediction": partial(dynamics.predict_emergence, problem(activation={3: 0.8, 5: 0.6}), save_at=AT),
    "coupling": partial(dynamics.solve_coupling, SPHERE, particles=16, save_at=SHORT),
    "chaos": partial(dynamics.propagation_of_chaos, SPHERE, widths=(4, 8), seeds=2, particles=16, save_at=SHORT),
    # As in study.toml.
    "sweep": quietly(partial(dynamics.sweep, problem(), {"beta": [0.8, 1.2]}), options={"save_at": SHORT, "rtol": 1e-6}, workers=0),
    "laws-scaling": quietly(dynamics.scaling_study, directions=16, dimension=32, starts=1),
    "laws-finite-size": quietly(dynamics.finite_size, betas=(1.0,), sizes=(16, 64), dimension=256, starts=2),
    "laws-compute-frontier": quietly(dynamics.compute_frontier, directions=16, dimension=32, widths=(2, 4, 8), starts=1),
    "laws-transfer": quietly(dynamics.transfer_study, directions=2, dimension=12, widths=(2, 3, 4, 6), steps=60, starts=2, workers=1),
    "simulation-diffusion": simulate(ONE_DIRECTION, engine="diffusion", learning_rate=1e-8, steps=200_000_000),
    "comparison": comparison,
    "sgd-sample-complexity": quietly(sgd_check.sample_complexity, information_exponents=(3,), dimensions=(12, 16), rate=0.02, seeds=2),
    "sgd-step-size": quietly(sgd_check.step_size_phases, information_exponent=3, dimension=12, seeds=2, learning_rates=(1e-3, 1e-2)),
    "sgd-unstable-discretisation": quietly(
        sgd_check.unstable_discretisation,
        information_exponent=3,
        directions=4,
        dimension=12,
        seeds=2,
        large_directions=64,
        large_dimension=128,
    ),
    "sgd-transfer": quietly(
        sgd_check.sgd_transfer,
        information_exponent=3,
        directions=2,
        dimension=12,
        widths=(1, 2, 3, 4),
        samples=400,
        starts=2,
        seeds=2,
    ),
}  # fmt: skip


class CtrlC:
    """A tracker that ends the run as Ctrl-C does, once it has passed a time."""

    def start(self, view):
        pass

    def check(self, view):
        if view.time > STOP_TIME:
            raise KeyboardInterrupt

    def finish(self, view):
        pass


def leave_unfinished(run, path):
    """Begin a run, stop it on its way, and leave its file."""
    if run.func is sgd_check.simulate:
        found = run(checkpoint=path, max_runtime=STOP_SECONDS)
    else:
        found = run(checkpoint=path, trackers=[CtrlC()], on_failure="return")
    if found.attrs["stop_reason"] not in ("interrupted", "max_runtime"):
        message = f"The run {path.stem} must stop on its way, but ended with {found.attrs['stop_reason']}."
        raise RuntimeError(message)


def write_files(folder):
    """Write `finished/NAME.nc` for every answer and `unfinished/NAME.nc` for every run."""
    for name in ("finished", "unfinished"):
        (folder / name).mkdir()
    for name, ask in (RUNS | ANSWERS).items():
        dynamics.save(ask(), folder / "finished" / f"{name}.nc")
    for name, run in RUNS.items():
        leave_unfinished(run, folder / "unfinished" / f"{name}.nc")


def unpack_files(target, kind):
    """Write the committed files of a kind, "finished" or "unfinished", to a directory as they were; return their paths."""
    return [_unpack(packed, target) for packed in sorted((Path(__file__).parent / kind).glob("*.nc.xz"))]


def _unpack(packed, target):
    path = target / packed.stem
    path.write_bytes(lzma.decompress(packed.read_bytes()))
    return path


def main(target):
    """Write all files, packed to a tenth of their size."""
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder))
        for path in sorted(Path(folder).glob("*/*.nc")):
            packed = target / path.parent.name / f"{path.name}.xz"
            packed.parent.mkdir(parents=True, exist_ok=True)
            with packed.open("xb") as stream:
                stream.write(lzma.compress(path.read_bytes(), preset=lzma.PRESET_EXTREME))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
