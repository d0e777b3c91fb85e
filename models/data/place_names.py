"""Read what calls tell of the place where they were made: the names that work there, and those that are rejected.

What somebody looked for there is no name of the place: values of arguments that name a person or a thing, quoted texts,
and what looks like an id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import orjson

from fleetlore.calls.context import RESULT_CHARACTERS, WORD, text_of
from fleetlore.calls.features import Call
from fleetlore.fingerprint.fingerprint import failure_of
from fleetlore.fingerprint.literals import masked_arguments
from fleetlore.fingerprint.names import failure_kind
from fleetlore.wire.trajectory import Step

_PLACEHOLDER = re.compile(r"<[\w ]+>")
_ID = re.compile(r"\d{3}")
# What stands before a name of a thing: the place itself, or a thing that the call names elsewhere too.
_QUALIFIER = re.compile(r"[A-Za-z_]\w*[`\"]?\.(?=[`\"]?[A-Za-z_])")
# A model that talks to a tool instead of calling it is often answered, and not refused.
_SPOKEN = frozenset(
    "apologize are can have how it me please sorry that the this was we what will you your".split()  # noqa: SIM905
)
# What a call names so itself, it alone knows by that name.
_ALIAS = re.compile(r"\bas\s+[`\"]?([a-z_]\w*)", re.I)


def names_of_place(calls: Iterable[Step]) -> Iterator[tuple[str, Step]]:
    """Yield the names that calls tell of the place where they were made, in order, each with the call that tells it.

    A call that worked tells the names in it, and those in its result that look like names of things; one that failed
    tells the names that it failed for. What passes by itself tells nothing.
    """
    for step in calls:
        if not step.transient:
            if step.failed:
                names = failed_names(step, Call(step.tool, text_of(step.arguments)))
            else:
                names = (*_own_names(step), *sorted(shown_names(step.result)))
            yield from ((name, step) for name in names)


def _own_names(step: Step) -> list[str]:
    """Names in the call without its literals, qualifiers and aliases. One word alone is a command."""
    masked = masked_arguments(step.arguments)
    text = masked if isinstance(masked, str) else text_of(orjson.dumps(masked).decode())
    text = _QUALIFIER.sub(" ", _PLACEHOLDER.sub(" ", text))
    aliases = _SPOKEN.union(name.lower() for name in _ALIAS.findall(text))
    call = Call(step.tool, text)
    return [name for name in call.names if name not in aliases] if len(call.tokens) > 1 else []


def failed_names(step: Step, call: Call) -> tuple[str, ...]:
    """Names of a call that it failed for."""
    failure = failure_of(step.tool, step.arguments, step.error_type, step.error_message)
    return failure_kind(failure.error_class, failure.template, step.error_message or "", call.text).names


def shown_names(result: str) -> set[str]:
    """Names in a result that look like those of things: with an underscore or a digit in them, and not those of ids."""
    words = (word for word in WORD.findall(result[:RESULT_CHARACTERS]) if not _ID.search(word))
    return {word.lower() for word in words if "_" in word.strip("_") or any(letter.isdigit() for letter in word)}
