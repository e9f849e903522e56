"""Bad files: damaged, foreign, hostile, none at all; read as they can be or refused in one sentence, never run."""

import os
from pathlib import Path

import numpy as np
import pytest
from fuzz_calls import problem
from fuzz_files import FOREIGN, damaged, spoiled, spoilers
from fuzz_guard import Case, complaint_of_call, complaint_of_command, ended, report
from fuzz_tiers import share

import dynamics
import sgd_check
from dynamics.report import __main__ as report_command
from dynamics.runs.run_file import reopened
from dynamics.runs.seal import SEAL_BYTES
from dynamics.runs.trackers import Callback
from dynamics.solve import __main__ as solve
from hermite.text.messages import shown
from sgd_check import study as sgd_study
from sgd_check.run import __main__ as run

#: One of so many hostile files is shown as a page too, which takes long.
PAGE_OF = 8

pytestmark = [pytest.mark.filterwarnings("ignore:File .* was begun by"), pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """Return good files by name: an unfinished flow, unfinished runs, a finished flow, a comparison, a sweep."""
    folder = tmp_path_factory.mktemp("good")
    save_at = dynamics.SaveAt.geometric(0.5, 30.0, 6)
    stop = [Callback(lambda time, _: time > 3.0)]
    dynamics.solve_overlaps(
        problem(), save_at=save_at, method="explicit", progress=False, trackers=stop, checkpoint=folder / "flow.nc"
    )
    flow = dynamics.solve_overlaps(problem(), save_at=save_at, method="explicit", progress=False)
    dynamics.save(flow, folder / "finished.nc")
    settings = {"learning_rate": 1e-4, "seeds": 2, "progress": False}
    sgd_check.simulate(problem(), steps=10**9, max_runtime=0.05, checkpoint=folder / "runs.nc", **settings)
    dynamics.save(sgd_check.compare(flow, sgd_check.simulate(problem(), steps=4, **settings)), folder / "tree.nc")
    dynamics.sweep(
        problem(), {"seed": [0, 1]}, study="prediction", workers=0, output=folder / "sweep.nc", progress=False
    ).close()
    return {path.stem: path for path in sorted(folder.glob("*.nc"))}


def asked(path):
    """Read a file as a question: the problem that it answers, where it is one answer."""
    found = dynamics.load(path)
    return dynamics.Problem.from_dataset(found)


def read_complaints(path, label):
    """Yield what is wrong with how the library reads a bad file; that it can be read is no complaint."""
    for read in (dynamics.load, asked, reopened):
        complaint = complaint_of_call(Case("files", label, lambda read=read: read(path)))
        if complaint is not None and not complaint.startswith("is accepted"):
            yield f"{label}, {read.__name__}", complaint


def test_foreign_files(here, record_property):
    path, complaints = here / "given.nc", {}
    for content in FOREIGN:
        path.write_bytes(content)
        complaints.update(read_complaints(path, shown(content[:60])))
        for main, given in (
            (run.main, ["given.nc", "--output", "new.nc"]),
            (solve.main, ["--resume", "given.nc"]),
            (report_command.main, ["given.nc", "--output", "new.html"]),
            (sgd_study.main, ["step-size", "--problem", "given.nc", "--output", "new.nc"]),
        ):
            case = Case("files", f"{given[0]} {shown(content[:60])}", lambda main=main, given=given: ended(main, given))
            complaint = complaint_of_command(case, here)
            if complaint is not None:
                complaints[f"{main.__module__} {case.label}"] = complaint
    record_property("bad inputs: files", len(FOREIGN))
    assert not complaints, report(complaints)
    assert not (here / "executed").exists()


@pytest.mark.longer
def test_damaged_files(good, here, record_property):
    rng, complaints, count = np.random.default_rng(7), {}, share("damaged")
    # Without the checksum, which shows the damage before anything else is read.
    contents = {name: path.read_bytes()[:-SEAL_BYTES] for name, path in good.items()}
    path = here / "given.nc"
    for at in range(count):
        name = sorted(contents)[at % len(contents)]
        path.write_bytes(damaged(rng, contents[name]))
        complaints.update(read_complaints(path, f"{name} {at}"))
    record_property("bad inputs: files", count)
    assert not complaints, report(complaints)


@pytest.mark.thorough
@pytest.mark.longer
def test_hostile_attributes(good, here, record_property):
    rng, complaints, count = np.random.default_rng(8), {}, share("hostile")
    path = here / "given.nc"
    for at, (what, spoil) in enumerate(spoilers(rng, count)):
        name = ("flow", "finished", "runs")[at % 3]
        spoiled(good[name], path, spoil)
        label = f"{name}: {what}"
        complaints.update(read_complaints(path, label))
        if at % PAGE_OF != PAGE_OF - 1:
            continue
        case = Case("files", label, lambda: ended(report_command.main, ["given.nc", "--output", "page.html"]))
        complaint = complaint_of_command(case, here)
        if complaint is not None and not (complaint == "touches a file" and (here / "page.html").exists()):
            complaints[f"{label}, report"] = complaint
        (here / "page.html").unlink(missing_ok=True)
    record_property("bad inputs: files", count)
    assert not complaints, report(complaints)
    assert not (here / "executed").exists()


def test_what_is_no_file(good, here, record_property):
    """Directories, devices, pipes, sockets, loops, broken links, names that no file can have."""
    os.mkfifo("fifo")
    Path("loop.nc").symlink_to("loop.nc")
    Path("broken.nc").symlink_to("missing.nc")
    Path("folder.nc").mkdir()
    Path("-rf.nc").write_bytes(b"")
    Path("`id`;$(id).nc").write_bytes(b"")
    names = ("fifo", "loop.nc", "broken.nc", "folder.nc", "./-rf.nc", "`id`;$(id).nc", "/dev/null", "/dev/zero", "/dev/random",
             "/dev/stdin", "/proc/self/mem", "/proc/self/pagemap", "", ".", "..", "/", "a\0b.nc", "x" * 300, "x/" * 3000, "~",
             "file:///etc/passwd", "https://localhost/a.nc", "s3://a/b.nc", "*.nc", "?", "\u202e.nc")  # fmt: skip
    complaints = {}
    for name in names:
        complaints.update(read_complaints(name, shown(name)))
    record_property("bad inputs: files", len(names))
    assert not complaints, report(complaints)


def test_files_that_may_not_be_read_or_written(good, here, record_property):
    """Root may read and write everything, so this is for other users; /proc, where nobody may, is among the flags."""
    if os.geteuid() == 0:
        pytest.skip("root may read and write everything")
    content = good["finished"].read_bytes()
    Path("secret.nc").write_bytes(content)
    Path("secret.nc").chmod(0)
    Path("locked").mkdir(mode=0o555)
    complaints = dict(read_complaints("secret.nc", "secret"))
    case = Case("files", "locked", lambda: dynamics.save(dynamics.load(good["finished"]), "locked/new.nc"))
    if (complaint := complaint_of_call(case)) is not None:
        complaints["locked"] = complaint
    record_property("bad inputs: files", 2)
    assert not complaints, report(complaints)
