"""The common part of both judges. It runs in an engine's environment and imports only the standard library."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn


class Refused(Exception):
    """The parser's error message."""


def judge(load: Callable[[], Callable[[list[str]], str]]) -> None:
    """Read cases from stdin and write one verdict per line to stdout.

    `load` returns a function that checks a command line and returns the passed checks. Engines also print to stdout,
    so their stdout is redirected to stderr.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    cases = json.load(sys.stdin)
    _be_strict()
    take = load()
    for case in cases:
        os.environ.update(case["env"])
        accepted, words = _verdict(take, case["argv"])
        for name in case["env"]:
            del os.environ[name]
        print(json.dumps({"case": case["name"], "accepted": accepted, "words": words}), file=answers, flush=True)


def _verdict(take: Callable[[list[str]], str], argv: list[str]) -> tuple[bool, str]:
    try:
        return True, take(argv)
    except Exception as error:  # noqa: BLE001 - any exception of an engine is a result
        return False, f"{type(error).__name__}: {error}"


def _be_strict() -> None:
    """Make parsers raise instead of exiting, and reject abbreviated flags, which could match a renamed flag."""
    begin = argparse.ArgumentParser.__init__

    def strictly(parser: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> None:
        begin(parser, *args, **{**kwargs, "allow_abbrev": False})

    def refuse(_: argparse.ArgumentParser, message: str) -> NoReturn:
        raise Refused(message)

    argparse.ArgumentParser.__init__ = strictly  # type: ignore[assignment, method-assign]
    argparse.ArgumentParser.error = refuse  # type: ignore[assignment, method-assign]
