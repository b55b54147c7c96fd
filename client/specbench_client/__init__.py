"""The client: measure, read each engine's wire, store, analyse, report, simulate; and the command line over it all."""

from importlib.metadata import version

__version__ = version("specbench")
