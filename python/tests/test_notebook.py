# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The documentation's notebook runs from top to bottom, and its cells show what the text around them says."""

import os
from pathlib import Path
from typing import Any

import pytest

import barewire

NOTEBOOKS = Path(__file__).parents[2] / "docs" / "notebooks"


@pytest.fixture(scope="module")
def executed() -> Any:
    nbformat = pytest.importorskip("nbformat", reason="nbclient and ipykernel are missing: make setup")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is missing: make setup")
    pytest.importorskip("ipykernel", reason="ipykernel is missing: make setup")
    notebook = nbformat.read(NOTEBOOKS / "first-look.ipynb", as_version=4)
    environment = {**os.environ, "PYTHONPATH": str(Path(barewire.__file__).parents[1])}
    client = nbclient.NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(NOTEBOOKS)}})
    client.execute(env=environment)
    return notebook


def test_every_cell_runs_and_shows_something(executed):
    cells = [cell for cell in executed.cells if cell.cell_type == "code"]
    assert all(cell.outputs for cell in cells)
    assert not [output for cell in cells for output in cell.outputs if output.output_type == "error"]


def test_the_cells_show_what_they_promise(executed):
    shown = {cell.source: _text(cell) for cell in executed.cells if cell.cell_type == "code"}
    assert any("<Run " in text for text in shown.values())
    assert any("raw" in text and "beta_ns_per_byte" in text for text in shown.values()), "there are fits"
    assert any("verdict" in text and "A faster" in text for text in shown.values()), "raw frames are faster than TCP"
    figures = [cell for cell in executed.cells if cell.source.startswith("run.plot(")]
    assert all("application/vnd.plotly.v1+json" in cell.outputs[0].data for cell in figures) and len(figures) == 3


def test_the_notebook_is_committed_without_outputs():
    assert '"outputs": []' in (NOTEBOOKS / "first-look.ipynb").read_text()
    assert '"output_type"' not in (NOTEBOOKS / "first-look.ipynb").read_text()


def _text(cell: Any) -> str:
    return "\n".join(output.data.get("text/plain", "") for output in cell.outputs if "data" in output)
