"""specbench in Python: read, measure, compare and decide.

    import specbench

    run = specbench.read("specbench-results", latest=True)
    run.speedups

`read` and `measure` return a `Run`. Its results are pandas data frames, whose column names end with units. Errors are
subclasses of `SpecbenchError`; their messages contain the remedy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specbench.questions import Decision as Decision
    from specbench.questions import RunComparison as RunComparison
    from specbench.questions import compare as compare
    from specbench.questions import decide as decide
    from specbench.questions import measure as measure
    from specbench.questions import read as read
    from specbench_api.errors import InvalidSpec as InvalidSpec
    from specbench_api.errors import SpecbenchError as SpecbenchError
    from specbench_client.errors import BadInput as BadInput
    from specbench_client.errors import EngineFailed as EngineFailed
    from specbench_client.errors import EvidenceInsufficient as EvidenceInsufficient
    from specbench_client.errors import Interrupted as Interrupted
    from specbench_client.errors import NotDurable as NotDurable
    from specbench_client.stored_runs.run import Run as Run
    from specbench_client.stored_runs.run import RunPlot as RunPlot

_MODULES = {
    "specbench_client.stored_runs.run": ("Run", "RunPlot"),
    "specbench.questions": ("read", "measure", "compare", "decide", "RunComparison", "Decision"),
    "specbench_api.errors": ("SpecbenchError", "InvalidSpec"),
    "specbench_client.errors": ("BadInput", "EngineFailed", "EvidenceInsufficient", "NotDurable", "Interrupted"),
}
"""Module → the names that it defines. They are imported on access, because pandas takes a second to import."""
__all__ = [name for names in _MODULES.values() for name in names]


def __getattr__(name: str) -> Any:
    """Import a name on its first access."""
    module = next((module for module, names in _MODULES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module 'specbench' has no attribute {name!r}: it has {', '.join(__all__)}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, also those that are not imported yet."""
    return sorted({*globals(), *__all__})
