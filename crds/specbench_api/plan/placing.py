"""What no schema can tell of a placement: keys of maps, the shape of what is passed through, and doubled settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from specbench_api.errors import Problem
from specbench_api.plan.canonical import canonical_json
from specbench_api.spec.affinity import Affinity
from specbench_api.spec.kubernetes import is_label_key
from specbench_api.spec.placement import Placement
from specbench_api.spec.run import RunSpec

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
TERMS = "nodeSelectorTerms"
HUB_TOKEN = "HF_TOKEN"  # noqa: S105 - the name of a variable
HUB_HOME = "HF_HOME"
TOKENS = (HUB_TOKEN, "HUGGING_FACE_HUB_TOKEN", "HF_HUB_TOKEN")
"""Variables in which hubs' libraries look for a token."""
AFFINITY_BYTES_MAX = 16_384


def problems_of_placement(spec: RunSpec) -> list[Problem]:
    """All of them."""
    return [*_of_labels(spec.placement), *_of_affinity(spec.placement.affinity), *_of_environment(spec)]


def _of_labels(placement: Placement) -> Iterator[Problem]:
    """Keys of labels."""
    counted = [row.label_selector for row in placement.topology_spread_constraints]
    maps: list[tuple[str, Mapping[str, str]]] = [
        ("nodeSelector", placement.node_selector),
        ("clientNodeSelector", placement.client_node_selector),
        *(
            (f"topologySpreadConstraints[{row}].labelSelector.matchLabels", selector.match_labels)
            for row, selector in enumerate(counted)
            if selector
        ),
    ]
    for field, labels in maps:
        for key in labels:
            if not is_label_key(key):
                yield Problem(
                    f"spec.placement.{field}", f"{key!r} is no label's key", "a name like pool or example.com/pool"
                )


def _of_affinity(affinity: Affinity | None) -> Iterator[Problem]:
    """The part of its shape that is built upon; the rest is the API server's to judge."""
    if affinity is None:
        return
    path = "spec.placement.affinity"
    if len(canonical_json(affinity.to_dict())) > AFFINITY_BYTES_MAX:
        yield Problem(path, f"is larger than {AFFINITY_BYTES_MAX} bytes", "say it by labels of your own on the nodes")
    for field, terms in affinity.to_dict().items():
        for key, given in terms.items():
            if key not in (REQUIRED, PREFERRED):
                yield Problem(f"{path}.{field}.{key}", "unknown field", f"{REQUIRED} or {PREFERRED}")
            elif field == "nodeAffinity" and key == REQUIRED:
                if not _are_maps(given.get(TERMS) if isinstance(given, Mapping) else None):
                    yield Problem(
                        f"{path}.{field}.{key}", f"holds no list {TERMS}", f"{TERMS}: [{{matchExpressions: …}}]"
                    )
            elif not _are_maps(given):
                yield Problem(f"{path}.{field}.{key}", "is no list of terms", "a list, as in a pod's spec.affinity")


def _are_maps(given: Any) -> bool:
    return isinstance(given, Sequence) and not isinstance(given, str) and all(isinstance(row, Mapping) for row in given)


def _of_environment(spec: RunSpec) -> Iterator[Problem]:
    """A token in the environment would lie in plan.json for all who may read results; a doubled cache is a riddle."""
    for row, variable in enumerate(spec.engine.env):
        path = f"spec.engine.env[{row}]"
        if variable.name in TOKENS:
            message = f"{variable.name} would be kept with the results, for all to read"
            yield Problem(path, message, "put it into a Secret and name that in spec.model.tokenSecret")
        if variable.name == HUB_HOME and spec.placement.model_cache:
            yield Problem(path, f"{HUB_HOME} is set by spec.placement.modelCache", "leave one of them out")
