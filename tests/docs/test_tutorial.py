"""The tutorials: their committed outputs are what they print and draw; `python tests/docs/test_tutorial.py` renews them.

The run of it needs the extra `docs`.
"""

import ast
import base64
import io
import json
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOKS = [DOCS / "tutorial.ipynb", DOCS / "tutorial_network.ipynb"]
each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
#: Least correlation of a figure that is drawn anew with the committed one, averaged over blocks of pixels.
BLOCK, LIKENESS = 8, 0.9


def code_cells(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def outputs(notebook, kind):
    """What the cells of a notebook show as one type of data, in order."""
    found = [output.get("data", {}) for cell in code_cells(notebook) for output in cell["outputs"]]
    return ["".join(data[kind]) for data in found if kind in data]


def printed(notebook):
    """What the cells of a notebook print, each as a whole."""
    return ["".join("".join(output.get("text", "")) for output in cell["outputs"]) for cell in code_cells(notebook)]


def shades(encoded):
    """A figure in shades of grey, averaged over blocks of pixels, in which the drawing of letters is lost."""
    grey = imread(io.BytesIO(base64.b64decode(encoded)))[:, :, :3].mean(axis=2)
    rows, columns = (size // BLOCK for size in grey.shape)
    return grey[: rows * BLOCK, : columns * BLOCK].reshape(rows, BLOCK, columns, BLOCK).mean(axis=(1, 3))


def executed(path, folder):
    """A tutorial, run by a kernel of its own in an empty folder."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    search = os.pathsep.join([str(DOCS.parent), os.environ.get("PYTHONPATH", "")])
    settings = {"PYTHONPATH": search, "MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    client = NotebookClient(notebook, timeout=500, record_timing=False, resources={"metadata": {"path": str(folder)}})
    client.execute(env=os.environ | settings)
    notebook["metadata"]["language_info"] = {"name": "python"}
    return notebook


@each
def test_the_committed_notebook_is_executed_small_and_of_no_machine(path):
    text = path.read_text(encoding="utf-8")
    notebook = json.loads(text)
    cells = code_cells(notebook)
    assert len(text) < 300_000
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        ast.parse("".join(cell["source"]))
        for output in cell["outputs"]:
            assert output["output_type"] in ("stream", "display_data", "execute_result")
            assert output.get("name", "stdout") == "stdout", "nothing warns"
    assert sum(map(bool, printed(notebook))) >= 3
    assert len(outputs(notebook, "image/png")) == 2
    assert len(outputs(notebook, "text/html")) >= 1
    assert not re.search(r"/(home|root|tmp|work|Users|usr)/|[A-Z]:\\\\", text)


@pytest.mark.long
@pytest.mark.timeout(600)
@each
def test_a_kernel_prints_and_draws_what_is_committed(path, tmp_path):
    committed, new = json.loads(path.read_text(encoding="utf-8")), executed(path, tmp_path)
    assert printed(new) == printed(committed)
    assert outputs(new, "text/html") == outputs(committed, "text/html")
    for drawn, shown in zip(outputs(new, "image/png"), outputs(committed, "image/png"), strict=True):
        before, after = shades(shown), shades(drawn)
        assert before.shape == after.shape
        assert np.corrcoef(before.ravel(), after.ravel())[0, 1] > LIKENESS


if __name__ == "__main__":
    import tempfile

    import nbformat

    for tutorial in NOTEBOOKS:
        with tempfile.TemporaryDirectory() as empty:
            nbformat.write(executed(tutorial, empty), tutorial)
        sys.stdout.write(f"{tutorial.name}: {tutorial.stat().st_size} bytes\n")
