"""Hugging Face transformers, behind our own small server."""

from specbench_api.launch.support.cell import Cell, Cells
from specbench_api.spec.drafter import Method

_LATER = "this version of specbench does not launch it yet"
CELLS: Cells = {
    method: Cell(False, _LATER, "specbench", "engine kind llama-cpp, or specbench measure on one that runs")
    for method in Method
}
