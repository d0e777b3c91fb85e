"""Hold one tool call in the forms in which it is read. Each form is made once."""

from __future__ import annotations

import re
from functools import cached_property, lru_cache

import orjson

from fleetlore.fingerprint.fingerprint import argument_shape, arguments_text, object_of, shaped_call_id
from fleetlore.words import TOKEN

__all__ = ["CALL_CHARACTERS", "KEYWORDS", "MadeCall", "text_of", "values_of"]

# Words without information about the goal.
KEYWORDS = frozenset(
    """
    select from where and or not in on as by order group having limit join inner left right outer distinct count sum avg
    min max desc asc is null like between union all the of to a an for with if else elif return import def print while
    true false none int str len range self lambda class try except
    """.split()  # noqa: SIM905
)
CALL_CHARACTERS = 2_500
MAX_TOKENS = 260
_LAST_TOKENS = 70
# Matches `import numpy as np`, `def f(`, `class A`, `for x in`, `let x`, `x = 1` at the beginning of a line or a
# command.
_BINDS = re.compile(
    r"\b(?:import|as|def|class|for|let|var|const|function)[ \t]+([A-Za-z_]\w*)|(?:^|;)[ \t]*([A-Za-z_]\w*)[ \t]*=(?!=)",
    re.M,
)


def values_of(arguments: str) -> dict[str, object]:
    """Return the arguments by name, or {} if they are no JSON object."""
    return object_of(arguments) or {}


@lru_cache(maxsize=256)  # steps are read in pairs
def text_of(arguments: str) -> str:
    """Return arguments as plain text: keys and values without the escapes of JSON."""
    values = object_of(arguments)
    if values is None:
        return arguments
    return "\n".join(
        f"{key} {each}" if isinstance(each, str) else f"{key} {orjson.dumps(each).decode()}"
        for key, each in values.items()
    )


class MadeCall:
    """One tool call. `json` is made at once, because a tool may change its arguments."""

    def __init__(self, tool: str, arguments: object) -> None:
        self.tool, self.arguments, self.json = tool, arguments, arguments_text(arguments)

    @cached_property
    def text(self) -> str:
        return text_of(self.json)

    @cached_property
    def shape(self) -> str:
        return argument_shape(self.json)

    @property
    def id(self) -> str:
        return shaped_call_id(self.tool, self.shape)

    def key(self, call_id: str) -> str:
        """Return the key of advice about the call: its id, or its tool and arguments."""
        return f"id\x1f{call_id}" if call_id else f"{self.tool}\x1f{self.json}"

    @cached_property
    def tokens(self) -> list[str]:
        """The first and last tokens of its text."""
        tokens = TOKEN.findall(self.text[:CALL_CHARACTERS])
        return tokens if len(tokens) <= MAX_TOKENS else tokens[: MAX_TOKENS - _LAST_TOKENS] + tokens[-_LAST_TOKENS:]

    @cached_property
    def names(self) -> list[str]:
        """Distinct names in lower case, in order, without keywords."""
        words = dict.fromkeys([token.lower() for token in self.tokens if len(token) > 1 and not token[0].isdigit()])
        return [word for word in words if word not in KEYWORDS]

    @property
    def bound(self) -> frozenset[str]:
        """Names in lower case that the call defines or imports."""
        return frozenset(
            [name.lower() for found in _BINDS.findall(self.text[:CALL_CHARACTERS]) for name in found if name]
        )
