"""The files: readable by others, refused in one sentence when damaged, foreign, newer or hostile."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import h5netcdf
import netCDF4
import numpy as np
import pytest
import xarray as xr

import dynamics
from dynamics.runs import storage
from dynamics.runs.dataset import SCHEMA_VERSION
from dynamics.runs.run_file import reopened
from dynamics.runs.trackers import Callback

ROOT = Path(dynamics.__file__).parent.parent


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory):
    path = tmp_path_factory.mktemp("files") / "run.nc"
    problem = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([1.0, 0.5]), width=3, dimension=16)
    dynamics.solve_overlaps(
        problem,
        save_at=dynamics.SaveAt.geometric(0.5, 30.0, 10),
        method="explicit",
        progress=False,
        trackers=[Callback(lambda time, _: time > 3.0)],
        checkpoint=path,
    )
    return path


def test_plain_xarray_reads_the_files(unfinished):
    ours = dynamics.load(unfinished)
    for engine in ("netcdf4", "h5netcdf"):
        with xr.open_dataset(unfinished, engine=engine) as plain:
            xr.testing.assert_equal(plain.load(), ours)
            assert set(plain.attrs) == set(ours.attrs)
    with xr.open_dataset(unfinished) as plain:
        xr.testing.assert_identical(plain.load(), ours)


def test_ncdump_reads_the_files(unfinished):
    program = shutil.which("ncdump")
    if program is None:
        pytest.skip("there is no ncdump here: it is in Debian's netcdf-bin")
    shown = subprocess.run([program, str(unfinished)], capture_output=True, text=True, check=True).stdout
    assert "group: checkpoint" in shown
    assert 'loss:units = "1"' in shown
    numbers = re.search(r"\n loss = ([^;]*);", shown)
    assert numbers is not None
    ours = dynamics.load(unfinished).loss.values
    read = [float("nan") if word.strip() in ("NaN", "_") else float(word) for word in numbers.group(1).split(",")]
    np.testing.assert_allclose(read, ours, rtol=1e-13)


def test_h5netcdf_and_netcdf4_read_the_files(unfinished):
    ours = dynamics.load(unfinished)
    with h5netcdf.File(unfinished) as file:
        np.testing.assert_array_equal(file.variables["loss"][:], ours.loss)
        assert set(file.groups["checkpoint"].groups) == {"run", "companion"}
    with netCDF4.Dataset(unfinished) as file:
        assert file.variables["loss"].long_name == ours.loss.attrs["long_name"]
        assert file.schema_version == SCHEMA_VERSION


def test_a_finished_file_has_no_checkpoint_and_loading_never_shows_one(unfinished, tmp_path):
    assert "checkpoint" in storage.load_tree(unfinished).children
    assert isinstance(dynamics.load(unfinished), xr.Dataset)
    path = shutil.copy(unfinished, tmp_path / "run.nc")
    dynamics.resume(path, progress=False)
    with netCDF4.Dataset(path) as file:
        assert file.groups == {}


def test_what_is_written_down_is_what_is_written(unfinished):
    """Each attribute and group of the file has its line in docs/files.md."""
    page = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
    tree = storage.load_tree(unfinished)
    names = {*tree.attrs, *(name for node in tree.subtree for name in (node.name, *node.attrs) if name)}
    missing = [name for name in sorted(names) if f"`{name}`" not in page]
    assert missing == []


def refusal(path, read=dynamics.load):
    with pytest.raises(dynamics.StorageError) as caught:
        read(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def with_version(unfinished, tmp_path, version):
    path = Path(shutil.copy(unfinished, tmp_path / "run.nc"))
    with netCDF4.Dataset(path, "a") as file:
        file.schema_version = version
    return path


def test_a_newer_file_is_refused(unfinished, tmp_path):
    path = with_version(unfinished, tmp_path, SCHEMA_VERSION + 1)
    assert refusal(path) == (
        f"File {str(path)!r} must have a schema_version of at most {SCHEMA_VERSION}, but has {SCHEMA_VERSION + 1}: "
        "a newer version of this program wrote it."
    )
    assert "newer version" in refusal(path, dynamics.resume)


@pytest.mark.parametrize("version", [0, -1, 1.5, "one", np.array([1, 2])])
def test_a_version_that_is_none_is_refused(unfinished, tmp_path, version):
    assert "must have a positive integer as schema_version" in refusal(with_version(unfinished, tmp_path, version))


def test_a_file_that_claims_more_than_it_can_hold_is_refused(tmp_path):
    """Ten terabytes that were never written take a few kilobytes; to read them would take the memory."""
    path = tmp_path / "bomb.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.schema_version = 1
        file.createDimension("x", 10**9)
        file.createDimension("y", 10**4)
        file.createVariable("loss", "u1", ("y", "x"), chunksizes=(1, 10**6), zlib=True)
    assert refusal(path) == f"File {str(path)!r} must be a readable netCDF file, but is not (ValueError)."


def mutations(content, rng):
    """Cut short, some bytes changed, a piece blanked, one byte of the header changed; in turn."""
    for at in range(48):
        changed = bytearray(content)
        if at % 4 == 0:
            del changed[int(rng.integers(len(content))) :]
        elif at % 4 == 1:
            for place in rng.integers(len(content), size=int(rng.integers(1, 20))):
                changed[place] = rng.integers(256)
        elif at % 4 == 2:
            begin = int(rng.integers(len(content) - 256))
            changed[begin : begin + 256] = bytes(256)
        else:
            changed[int(rng.integers(2048))] = rng.integers(256)
        yield bytes(changed)


@pytest.mark.filterwarnings("ignore:File .* was begun by")
def test_damaged_files_are_read_or_refused_in_one_sentence(unfinished, tmp_path, rng):
    path, sentences = tmp_path / "damaged.nc", []
    for content in mutations(unfinished.read_bytes(), rng):
        path.write_bytes(content)
        for read in (dynamics.load, reopened):
            try:
                read(path)
            except dynamics.StorageError as error:
                sentences.append(str(error))
    assert len(sentences) > 10
    assert all(sentence.startswith(f"File {str(path)!r} must ") for sentence in sentences)


@pytest.mark.parametrize(
    "content", [b"", b"\x89HDF\r\n\x1a\n", b"CDF\x01", b"\x80\x04cos\nsystem\n", b"<html>", bytes(4096)]
)
def test_foreign_files_are_refused(tmp_path, content):
    path = tmp_path / "foreign.nc"
    path.write_bytes(content)
    for read in (dynamics.load, dynamics.resume):
        assert refusal(path, read).startswith(f"File {str(path)!r} must be a readable netCDF file, but is not (")


@pytest.mark.parametrize("text", ["[]", "{", '{"solver": {}}', '{"solver": {"answer": []}, "problem": 3}', "null"])
def test_parameters_that_say_nothing_are_refused(unfinished, tmp_path, text):
    path = Path(shutil.copy(unfinished, tmp_path / "run.nc"))
    with netCDF4.Dataset(path, "a") as file:
        file.parameters = text
    assert "must hold a whole checkpoint of this program" in refusal(path, dynamics.resume)


def test_a_formula_in_a_file_is_never_executed(unfinished, tmp_path):
    path, mark = Path(shutil.copy(unfinished, tmp_path / "run.nc")), tmp_path / "executed"
    with netCDF4.Dataset(path, "a") as file:
        file.parameters = file.parameters.replace('"text": "he4"', f"\"text\": \"open('{mark}', 'w')\"")
        assert "executed" in file.parameters
    refusal(path, dynamics.resume)
    assert not mark.exists()
