"""Settings: read from the environment, and wrong ones refused by name."""

from __future__ import annotations

import pytest

from specbench_operator.errors import Stop
from specbench_operator.settings import Settings

IMAGE = {"SPECBENCH_CLIENT_IMAGE": "registry.example/specbench:1"}


def test_only_the_image_must_be_said() -> None:
    assert Settings.from_env(IMAGE) == Settings(client_image="registry.example/specbench:1")
    with pytest.raises(Stop, match="SPECBENCH_CLIENT_IMAGE"):
        Settings.from_env({})


def test_every_kind_of_value_is_read() -> None:
    given = {
        **IMAGE,
        "SPECBENCH_NAMESPACES": "team-a, team-b,",
        "SPECBENCH_WORKERS": "2",
        "SPECBENCH_RELIST_S": "0.5",
        "SPECBENCH_IMAGE_PULL_POLICY": "Always",
        "SPECBENCH_PROBE_ENGINES": "true",
        "SPECBENCH_LOG_LEVEL": " ",
    }
    settings = Settings.from_env(given)
    assert settings.namespaces == ("team-a", "team-b")
    assert (settings.workers, settings.relist_s) == (2, 0.5)
    assert settings.probe_engines
    assert not Settings.from_env({**IMAGE, "SPECBENCH_PROBE_ENGINES": "false"}).probe_engines
    assert (settings.image_pull_policy, settings.log_level) == ("Always", "INFO")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SPECBENCH_WORKERS", "many"),
        ("SPECBENCH_WORKERS", "0"),
        ("SPECBENCH_PROBE_ENGINES", "perhaps"),
        ("SPECBENCH_RELIST_S", "-1"),
        ("SPECBENCH_IMAGE_PULL_POLICY", "Sometimes"),
        ("SPECBENCH_LOG_LEVEL", "LOUD"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_by_its_name(name: str, value: str) -> None:
    with pytest.raises(Stop, match=name):
        Settings.from_env({**IMAGE, name: value})
