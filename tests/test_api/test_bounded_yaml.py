"""YAML that anybody may have written is read in bounded time and memory, or rejected with line and remedy."""

from __future__ import annotations

import pytest

from specbench_api.errors import NotYaml
from specbench_api.spec.parsing import DEPTH_MAX, NODES_MAX, TEXT_BYTES_MAX, yaml_documents

# Every level repeats the level before nine times: 9**30 values in fewer than 700 bytes.
BILLION_LAUGHS = "a0: &a0 [x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{','.join([f'*a{level - 1}'] * 3)}]\n" for level in range(1, 30)
)
NESTED_ALIASES = "a0: &a0 [x]\n" + "".join(f"a{level}: &a{level} [*a{level - 1}]\n" for level in range(1, 90))
NESTED_MERGES = "a0: &a0 {k: x}\n" + "".join(
    f"a{level}: &a{level} {{<<: [*a{level - 1}, *a{level - 1}], k{level}: 1}}\n" for level in range(1, 40)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(BILLION_LAUGHS, f"more than {NODES_MAX:,} keys and values, aliases repeated.*line", id="laughs"),
        pytest.param(NESTED_MERGES, f"more than {NODES_MAX:,} keys and values", id="merges"),
        pytest.param(NESTED_ALIASES, f"nested too deeply: more than {DEPTH_MAX} levels.*line", id="nested aliases"),
        pytest.param("a: " + "[" * 100_000, "nested too deeply.*line 1", id="lists"),
        pytest.param("- " * 1000, "nested too deeply.*line 1", id="block lists"),
        pytest.param("a: [" + "1," * NODES_MAX + "1]", "more than 50,000 keys", id="values"),
        pytest.param("a: &a [*a]", r"the alias \*a is inside the value that it repeats", id="alias in itself"),
        pytest.param("a: *b", "undefined alias", id="undefined alias"),
        pytest.param("a: " + "1:" * 200_000 + "1", "a number of 400001 characters", id="sexagesimal integer"),
        pytest.param("a: " + "1:" * 300 + "1.5", "a number of 603 characters", id="sexagesimal float"),
        pytest.param("a: 0x" + "f" * 10_000, "a number of 10002 characters", id="hexadecimal"),
        pytest.param('a: !!int ""', "does not fit its type", id="empty integer"),
        pytest.param("a: !!bool maybe", "does not fit its type", id="not a bool"),
        pytest.param("a: !!timestamp soon", "does not fit its type", id="not a timestamp"),
        pytest.param("a: !!python/object/apply:os.getcwd []", "could not determine a constructor", id="python object"),
        pytest.param("{? [a]: 1}", "unhashable key", id="list as a key"),
        pytest.param("a: 1\na: 2", "the key 'a' is written twice.*line 2", id="duplicate key"),
        pytest.param("a: '" + "x" * TEXT_BYTES_MAX + "'", r"run\.yaml: is larger than 1024 KiB", id="large"),
    ],
)  # fmt: skip
def test_hostile_yaml_is_rejected_with_what_and_where(text: str, message: str) -> None:
    with pytest.raises(NotYaml, match=f"(?s){message}") as rejected:
        yaml_documents(text, "run.yaml")
    assert rejected.value.problems[0].path == "run.yaml"
    assert len(str(rejected.value)) < 1000


def test_anchors_aliases_and_merges_within_the_limits_are_read() -> None:
    text = "base: &base {a: 1, b: [1, 2]}\nother: {<<: *base, a: 2}\nlist: [*base, *base]\n"
    (document,) = yaml_documents(text)
    assert document["other"] == {"a": 2, "b": [1, 2]}
    assert document["list"] == [{"a": 1, "b": [1, 2]}] * 2
