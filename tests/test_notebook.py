"""The notebook runs from top to bottom, and is stored without what a run leaves in it."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parent.parent / "notebooks" / "look_at_levels.ipynb"


@pytest.fixture
def notebook():
    return nbformat.read(NOTEBOOK, as_version=nbformat.NO_CONVERT)


def test_is_stored_without_outputs(notebook):
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.outputs for cell in code] == [[]] * len(code)
    assert [cell.execution_count for cell in code] == [None] * len(code)


def test_cells_are_named_by_what_they_show(notebook):
    names = [cell.id for cell in notebook.cells]
    assert all(name.replace("-", "").isalpha() for name in names)


def test_runs(notebook, spec, monkeypatch, tmp_path):
    monkeypatch.setenv("HZB_DEVICE", spec)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    resources = {"metadata": {"path": str(NOTEBOOK.parent)}}
    NotebookClient(notebook, kernel_name="python3", timeout=300, resources=resources).execute()

    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 5
