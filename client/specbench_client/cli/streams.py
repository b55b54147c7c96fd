"""stdout and stderr: streams without Unicode, closed pipes and full disks."""

from __future__ import annotations

import codecs
import errno
import io
import os
import re
import select
import signal
import sys
import unicodedata

import click

from specbench_client.visible_text import json_escape, json_escaped, visible

# Streams that are not Unicode, as with LANG=C or PYTHONIOENCODING=ascii.

_ASCII = {
    "×": "x",
    "…": "...",
    "–": "-",
    "—": "-",
    "−": "-",
    "·": "*",
    "•": "*",
    "→": "->",
    "←": "<-",
    "≥": ">=",
    "≤": "<=",
    "≈": "~",
    "±": "+/-",
    "÷": "/",
    "Σ": "sum",
    "α": "alpha",
    "µ": "u",
    "μ": "u",
    "“": "'",
    "”": "'",
    "‘": "'",
    "’": "'",
    "✅": "+",
    "❌": "x",
    "❔": "?",
}
_CODEC = "specbench_ascii"
_ERROR_HANDLER = _CODEC


def ascii_text(text: str) -> str:
    """Return the text in ASCII: known symbols are spelled out, accents are dropped, anything else becomes `?`."""
    return "".join(map(_ascii_character, text))


def _ascii_character(character: str) -> str:
    if character.isascii():
        return character
    plain = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return _ASCII.get(character) or plain or "?"


def use_ascii_where_needed() -> None:
    """Let stdout and stderr spell out the characters that their encoding lacks, instead of failing with a traceback.

    For ASCII this is a codec and not only an error handler, because click replaces an ASCII stream with a UTF-8 one.
    """
    codecs.register(lambda name: _ascii_codec() if name == _CODEC else None)
    codecs.register_error(_ERROR_HANDLER, _spell_out)
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper) or _is_unicode(stream.encoding):
            continue
        if codecs.lookup(stream.encoding).name == "ascii":
            stream.reconfigure(encoding=_CODEC)
        else:
            stream.reconfigure(errors=_ERROR_HANDLER)


class _AsciiEncoder(codecs.IncrementalEncoder):
    def encode(self, text: str, final: bool = False) -> bytes:  # noqa: ARG002, FBT001, FBT002  the base's signature
        return ascii_text(text).encode("ascii")


def _ascii_codec() -> codecs.CodecInfo:
    plain = codecs.lookup("ascii")
    return codecs.CodecInfo(
        name=_CODEC,
        encode=lambda text, errors="strict": (ascii_text(text).encode("ascii"), len(text)),  # noqa: ARG005
        decode=plain.decode,
        incrementalencoder=_AsciiEncoder,
        incrementaldecoder=plain.incrementaldecoder,
    )


def _spell_out(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return ascii_text(error.object[error.start : error.end]), error.end


def _is_unicode(encoding: str | None) -> bool:
    return (encoding or "").lower().startswith("utf")


def echo(text: str, *, err: bool = False) -> None:
    """Print lines on stdout, or on stderr. Control characters and other invisible characters are shown as escapes."""
    click.echo(visible(text), err=err)


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
