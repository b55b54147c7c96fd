"""The models that `make test` and `make test-model` explore, by the expression that creates them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from specbench_testing.campaign_model import CampaignModel
from specbench_testing.model_checker import Model
from specbench_testing.run_model import RunModel

MODELS: Mapping[str, Callable[[], Model[Any]]] = {
    "RunModel()": RunModel,
    "RunModel(queued=True)": lambda: RunModel(queued=True),
    "RunModel(external=True)": lambda: RunModel(external=True),
    "RunModel(stale=True)": lambda: RunModel(stale=True),
    "CampaignModel()": CampaignModel,
    "CampaignModel(stop=True)": lambda: CampaignModel(stop=True),
}
