"""An endpoint that already runs."""

from specbench_api.launch.support.cell import Cell, Cells, Evidence
from specbench_api.spec.drafter import Method

_WHY = "an endpoint that already runs has the drafter that it was started with"
CELLS: Cells = {method: Cell(False, _WHY, "specbench measure", "specbench measure", Evidence.RUN) for method in Method}
