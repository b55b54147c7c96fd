"""`specbench-client`, the program of the client Job: measures a group, writes the report, or evaluates the gate.

This module and `termination` import no libraries, because signals must be handled before those are loaded, which takes
seconds.
"""

from __future__ import annotations

import sys

from specbench_client.job.termination import TerminationWriter, termination_log


def main() -> None:
    """Run the program; the entry point."""
    arguments = sys.argv[1:]
    termination = TerminationWriter(termination_log(arguments))
    termination.listen()
    from specbench_client.job.commands import run_program  # noqa: PLC0415 -- loads the libraries, after listen()

    code = run_program(arguments, termination)
    termination.exit_within_deadline()  # The termination message is written; hanging threads must not delay the exit.
    sys.exit(code)
