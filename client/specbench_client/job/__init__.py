"""`specbench-client`: the program of the client Job. One group driven, or the answer made; why it ended is always said.

What is here and in `last_words` is light: a signal is heard before the libraries are loaded, which takes seconds.
"""

from __future__ import annotations

import sys

from specbench_client.job.last_words import LastWords, termination_log


def main() -> None:
    """Entry point."""
    arguments = sys.argv[1:]
    words = LastWords(termination_log(arguments))
    words.listen()
    from specbench_client.job.ending import run_program  # noqa: PLC0415 -- the libraries, now that we listen

    code = run_program(arguments, words)
    words.leave_soon()  # what still hangs has nothing to add: everything is told
    sys.exit(code)
