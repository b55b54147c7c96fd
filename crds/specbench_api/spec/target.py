"""`spec.model`: the target, whose output is wanted."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from specbench_api.model import ApiModel, Rule, refuse_broken
from specbench_api.spec.kubernetes import LEADS_OUT, ObjectName, SecretKey, SubPath, leads_out

Path = Annotated[str, Field(min_length=1, max_length=1024)]


class PvcModel(ApiModel):
    """A model that lies on a PersistentVolumeClaim of the run's namespace."""

    rules: ClassVar = (
        Rule(
            f"!self.path.matches('{LEADS_OUT}')",
            "pvc.path leads out of the volume by ..: give the path inside it",
        ),
        Rule(
            f"!has(self.subPath) || !self.subPath.matches('{LEADS_OUT}')",
            "pvc.subPath leads out of the volume by ..: give the folder inside it",
        ),
    )

    claim_name: ObjectName
    """Name of the PersistentVolumeClaim."""
    path: Path
    """Path of the model inside the volume, or inside `subPath` where that is given."""
    sub_path: SubPath | None = None
    """Folder of the volume that is mounted instead of all of it. Either is mounted read-only."""

    @model_validator(mode="after")
    def _inside(self) -> PvcModel:
        refuse_broken(self.rules, (not leads_out(self.path), not leads_out(self.sub_path)))
        return self


class TokenSecret(ApiModel):
    """A key of a Secret of the run's namespace. It is named, never read: the kubelet alone sees its value."""

    name: ObjectName
    """Name of the Secret."""
    key: SecretKey = "HF_TOKEN"
    """Key of the Secret that holds the token."""


class Target(ApiModel):
    """The model under test. With none of `uri`, `path` and `pvc` the engine fetches `name` from the hub.

    The prebuilt wheel of llama.cpp, which `specbench run` takes where no llama-server is on PATH, fetches from no hub:
    it needs `path`, and a file as the drafter's model. `specbench run` refuses before it starts anything.
    """

    rules: ClassVar = (
        Rule(
            "[has(self.uri), has(self.path), has(self.pvc)].filter(x, x).size() <= 1",
            "give at most one of uri, path and pvc; without any of them the engine fetches the name from its hub",
        ),
    )

    name: Annotated[str, Field(min_length=1, max_length=256)]
    """Name of the model, as the hub knows it; engines serve it under this name."""
    revision: Annotated[str, Field(min_length=1, max_length=128)] = "main"
    """Revision of the model on the hub: a branch, a tag, or best a commit."""
    uri: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^(s3|hf|https)://.+")] | None = None
    """Where the engine fetches the model from instead of the hub."""
    path: Path | None = None
    """Path of the model in the engine's image or on this machine, where it may begin with ~ or beside the spec."""
    pvc: PvcModel | None = None
    """The model lies on a volume claim."""
    tokenizer: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    """Tokenizer, where it is not the model's own."""
    token_secret: TokenSecret | None = None
    """The hub's token, given as HF_TOKEN to engines, and to the clients that read prompts and tokenizers there. Not in
    plan.json and no part of any point's identity. On this machine it is not read: HF_TOKEN is inherited from where
    `specbench run` is started."""

    @model_validator(mode="after")
    def _one_source(self) -> Target:
        if sum(source is not None for source in (self.uri, self.path, self.pvc)) > 1:
            raise ValueError(self.rules[0].message)
        return self
