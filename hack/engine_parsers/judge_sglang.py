"""Checks command lines with SGLang's parser, its list of algorithms, and its reader of a file of draft lengths.

Runs in SGLang's environment.
"""

from __future__ import annotations

from collections.abc import Callable

from engine_parsers.judge import judge


def load() -> Callable[[list[str]], str]:
    """Import SGLang's argument parser, which takes seconds."""
    from sglang.srt.server_args import prepare_server_args  # noqa: PLC0415 - the environment's, and slow
    from sglang.srt.speculative.adaptive_spec_params import resolve_candidate_steps_from_config  # noqa: PLC0415
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm  # noqa: PLC0415

    def take(argv: list[str]) -> str:
        args = prepare_server_args(argv)
        algorithm = args.speculative_algorithm
        found = SpeculativeAlgorithm.from_string(algorithm) if algorithm else None
        file = args.speculative_adaptive_config
        lengths = f"; draft lengths {resolve_candidate_steps_from_config(file)}" if file else ""
        return f"parser; drafter: {found.name if found else 'none'}{lengths}"

    return take


if __name__ == "__main__":
    judge(load)
