"""stdout and stderr: streams without Unicode, closed pipes and full disks."""

from __future__ import annotations

import errno
import io
import os
import re
import select
import signal
import sys

import click

from specbench_client.optional_dependencies import as_started
from specbench_client.visible_text import json_escape, json_escaped, visible


def tolerate_missing_characters() -> None:
    """Let stdout and stderr print `?` for a character that their encoding lacks, instead of a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not _is_unicode(stream.encoding):
            stream.reconfigure(errors="replace")


def _is_unicode(encoding: str | None) -> bool:
    return (encoding or "").lower().startswith("utf")


def echo(text: str, *, err: bool = False) -> None:
    """Print lines on stdout, or on stderr. Control characters and other invisible characters are shown as escapes."""
    click.echo(visible(as_started(text)), err=err)


def echo_document(document: str | bytes) -> None:
    """Print a whole document on stdout. Its renderer has made invisible characters visible."""
    click.echo(document, nl=False)


def echo_json(text: str) -> None:
    """Print a JSON document on stdout. Invisible characters, and those stdout cannot carry, are escaped, not lost."""
    text = json_escaped(text)
    if not _is_unicode(sys.stdout.encoding):
        text = re.sub(r"[^\x00-\x7f]", json_escape, text)
    click.echo(text, nl=not text.endswith("\n"))


# Broken and full output streams.
#
# A reader may close the pipe, as in `specbench report … | head -1`; the command then ends silently, as after SIGPIPE.
# SIGPIPE itself stays ignored, Python's default: otherwise any closed network connection could end a measurement.

EXIT_BROKEN_PIPE = 128 + signal.SIGPIPE
"""The exit code that shells report for a program killed by SIGPIPE."""


def close_broken_streams() -> bool:
    """Return whether stdout or stderr has lost its reader; further output to such a stream is discarded."""
    poll = select.poll()
    for stream in (1, 2):
        poll.register(stream, 0)
    broken = [stream for stream, event in poll.poll(0) if event & (select.POLLERR | select.POLLHUP)]
    for stream in broken:
        _redirect_to_devnull(stream)
    return bool(broken)


def close_full_stdout(error: OSError) -> bool:
    """Return whether the error means that stdout is on a full disk; further output to stdout is then discarded.

    Errors of files that the program opened itself have a file name, so they do not count.
    """
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) and error.filename is None
    if full:
        _redirect_to_devnull(1)
    return full


def _redirect_to_devnull(stream: int) -> None:
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, stream)
    os.close(devnull)
