"""Reads YAML that anybody may have written, in bounded time and memory.

A few hundred bytes of YAML can describe gigabytes, because an alias repeats what its anchor names. So every node counts
as often as it is repeated, and size, nesting and the length of numbers are bounded. Duplicate keys are rejected.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError

from specbench_api.errors import NotYaml, Problem

TEXT_BYTES_MAX = 1024 * 1024
"""Bytes of a text. The API server stores no larger resource."""
NODES_MAX = 50_000
"""Keys and values of a text; what an alias repeats counts each time."""
DEPTH_MAX = 64
"""Levels of nested mappings and lists."""
NUMBER_CHARACTERS_MAX = 100
"""Characters of a number. Python needs quadratic time to read an integer."""
UNNAMED = '"<unicode string>"'
"""How PyYAML refers to text that it received as a string."""
_MERGE = "tag:yaml.org,2002:merge"
_TAG_ERRORS = (ArithmeticError, LookupError, AttributeError, TypeError)
"""What PyYAML raises, besides ValueError, where a value does not fit its tag, such as `!!int ""`."""
_QUOTE = "quote the value if it is meant as text"


def yaml_documents(text: str, name: str = "(file)") -> list[Any]:
    """Return the documents of a text, without empty ones; messages refer to the text as `name`. Raises NotYaml."""
    if len(text) > TEXT_BYTES_MAX or len(text.encode(errors="replace")) > TEXT_BYTES_MAX:
        raise too_large(name)
    try:
        return [document for document in yaml.load_all(text, _BoundedLoader) if document is not None]
    except yaml.YAMLError as error:
        raise NotYaml([Problem(name, f"not valid YAML: {error}".replace(UNNAMED, name))]) from error
    except ValueError as error:  # an impossible date or number; the message describes it
        raise NotYaml([Problem(name, f"not valid YAML: {error}", _QUOTE)]) from error
    except _TAG_ERRORS as error:
        raise NotYaml([Problem(name, "not valid YAML: a value does not fit its type or tag", _QUOTE)]) from error


def too_large(name: str) -> NotYaml:
    """Return the error for a text above the limit."""
    remedy = "the API server stores no larger resource: split it"
    return NotYaml([Problem(name, f"is larger than {TEXT_BYTES_MAX // 1024} KiB", remedy)])


class _BoundedLoader(yaml.SafeLoader):
    """A YAML loader with limits that rejects duplicate keys; PyYAML silently keeps the last one."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._nodes = 0
        self._depth = 0
        self._deepest = 0
        self._anchored: dict[yaml.Node, tuple[int, int]] = {}
        """Anchored node → its nodes, and its levels of nesting."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Return the next node. Raises ComposerError above a limit."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        mark, is_alias, anchor = event.start_mark, self.check_event(yaml.AliasEvent), event.anchor
        if is_alias:
            node = super().compose_node(parent, index)
            if node not in self._anchored:
                message = f"the alias *{anchor} is inside the value that it repeats: write the value itself"
                raise ComposerError(None, None, message, mark)
            nodes, levels = self._anchored[node]
            self._count(nodes, levels, mark)
            return node
        nodes, deepest, self._deepest = self._nodes, self._deepest, 0
        self._count(1, 1, mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if anchor is not None and node is not None:
            self._anchored[node] = self._nodes - nodes, self._deepest - self._depth
        self._deepest = max(deepest, self._deepest)
        return node

    def _count(self, nodes: int, levels: int, mark: Any) -> None:
        self._nodes += nodes
        self._deepest = max(self._deepest, self._depth + levels)
        if self._nodes > NODES_MAX:
            message = f"more than {NODES_MAX:,} keys and values, aliases repeated: write fewer values, and no aliases"
            raise ComposerError(None, None, message, mark)
        if self._deepest > DEPTH_MAX:
            raise ComposerError(None, None, f"nested too deeply: more than {DEPTH_MAX} levels: nest less", mark)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        keys: set[Hashable] = set()
        for key, _ in node.value:
            if not isinstance(key.value, Hashable):
                continue  # PyYAML rejects it below
            if key.value in keys and key.tag != _MERGE:
                raise ConstructorError(None, None, f"the key {key.value!r} is written twice", key.start_mark)
            keys.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        """Return a number. Raises ConstructorError for one that is too long."""
        if len(node.value) > NUMBER_CHARACTERS_MAX:
            message = f"a number of {len(node.value)} characters: quote it if it is meant as text"
            raise ConstructorError(None, None, message, node.start_mark)
        is_int = node.tag.endswith(":int")
        return self.construct_yaml_int(node) if is_int else self.construct_yaml_float(node)


for _kind in ("int", "float"):
    _BoundedLoader.add_constructor(f"tag:yaml.org,2002:{_kind}", _BoundedLoader.construct_number)
