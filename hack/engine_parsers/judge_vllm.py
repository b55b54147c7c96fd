"""Checks command lines with vLLM's parser of `vllm serve`, its validation, and its engine configuration.

Runs in vLLM's environment. The device is set to CPU, because vLLM finds none without a GPU. An empty module replaces
arctic-inference, which suffix decoding requires and no wheel includes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType

from engine_parsers.judge import judge


def load() -> Callable[[list[str]], str]:
    """Import vLLM, which takes ten seconds."""
    os.environ["VLLM_TARGET_DEVICE"] = "cpu"
    stub = ModuleType("arctic_inference")
    stub.__spec__ = ModuleSpec("arctic_inference", None)
    sys.modules["arctic_inference"] = stub

    from vllm.engine.arg_utils import AsyncEngineArgs  # noqa: PLC0415 - it reads the environment that was set above
    from vllm.entrypoints.common.cli_args import make_arg_parser, validate_parsed_serve_args  # noqa: PLC0415
    from vllm.utils.argparse_utils import FlexibleArgumentParser  # noqa: PLC0415

    parser = make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))

    def take(argv: list[str]) -> str:
        parsed = parser.parse_args(argv)
        parsed.model = parsed.model_tag  # as `vllm serve` does
        validate_parsed_serve_args(parsed)
        config = AsyncEngineArgs.from_cli_args(parsed).create_engine_config()
        method = config.speculative_config.method if config.speculative_config else "none"
        return f"parser and engine configuration; drafter: {method}"

    return take


if __name__ == "__main__":
    judge(load)
