"""Our simulator: it imitates every method."""

from specbench_api.launch.support.cell import Cell, Cells, Evidence
from specbench_api.spec.drafter import Method

CELLS: Cells = {
    method: Cell(True, f"--drafter {method}", "specbench simulate", evidence=Evidence.RUN) for method in Method
}
