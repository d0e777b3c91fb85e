"""Distil what came with the next call that worked, where too much was changed to call it a repair.

One such call proves little: whatever else it did, it brought what the failed call lacked. So these recoveries are bound
to no pattern and are found by likeness alone (`fleetlore.recall.ways_out`), which weighs how many agents brought the
same after failures like it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from fleetlore.calls.context import text_of
from fleetlore.calls.failed_call import words
from fleetlore.calls.nearest import new_part
from fleetlore.fingerprint.fingerprint import failure_of, parsed
from fleetlore.fingerprint.literals import is_code, masked_arguments, masked_text
from fleetlore.fingerprint.names import failure_kind
from fleetlore.wire.trajectory import Judgment, Step
from models.distil.call_diff import MAX_TOKENS, opcodes
from models.distil.formatting import VERSION, Calls, error_text, item_id, known_of, line, near, said
from models.distil.recovery import LESS, drops_check, worked
from models.memory.candidate import Candidate, origin
from models.memory.quality import ERROR

MAX_CHANGE = 240
_PLACEHOLDER = re.compile(r"<[^<>]*>")
_TOKEN = re.compile(r"\w+|[^\w\s]|\s+")
# Around what came in a call of one line, so that it can be read.
_AROUND = 2


def next_working(judgment: Judgment, calls: Calls, telling: list[int], past: Iterable[Candidate]) -> list[Candidate]:
    """At most one a working call, for the first failure that led to it; none for failures with a better recovery.

    Args:
        past: other recoveries of the session.
    """
    known = {each.pattern for each in past if each.near}
    used: set[int] = set()
    found: dict[str, Candidate] = {}
    for index in telling:
        failed = calls[index]
        later = next(
            (place for place in range(index + 1, len(calls)) if _follows(judgment, failed, calls[place])), None
        )
        if later is None or later in used:
            continue
        used.add(later)
        if failed.pattern not in known and not failed.is_cut and not calls[later].is_cut:
            candidate = _candidate(judgment, failed, calls[later])
            if candidate is not None:
                found.setdefault(candidate.item_id, candidate)
    return list(found.values())


def _follows(judgment: Judgment, failed: Step, call: Step) -> bool:
    return call.tool == failed.tool and worked(judgment, call)


def _candidate(judgment: Judgment, failed: Step, worked: Step) -> Candidate | None:
    trajectory, tool = judgment.trajectory, failed.tool
    before, after = _code(failed.arguments), _code(worked.arguments)
    if before is None or after is None:
        return None
    failure = failure_of(tool, failed.arguments, failed.error_type, failed.error_message)
    kind = failure_kind(failure.error_class, failure.template, said(failed), text_of(failed.arguments))
    known = known_of(failed)
    new = sorted(_new_parts(before, after), key=lambda part: frozenset(words(part)).isdisjoint(kind.names))
    # Another call altogether (a look-up) is said as that.
    change = _change("call" if new == [after.strip()] else "add", (masked_text(part, known) for part in new))
    brought = set(words(_PLACEHOLDER.sub("", new_part(change)))).difference(words(before))
    if not brought or LESS.search(change) or drops_check(failed, worked):
        return None
    error = error_text(failed)
    return Candidate(
        **origin(trajectory),
        # Sessions that brought the same names after the same kind of failure back the same item.
        item_id=item_id(trajectory.tenant, "next", tool, kind.kind, *sorted(brought)),
        kind="recovery",
        side="success",
        rank=(len(change),),
        title=line(f"{tool}: {line(error, 90)} — {change}", 200),
        description=f"After this error the next call of {tool} that worked brought: {change}.",
        content=f"{ERROR}{error}\nChange: {change}",
        when=f"{tool} fails with: {error}",
        tool=tool,
        remedy={"tool": tool, "arguments": masked_arguments(worked.arguments, known)},
        version=VERSION,
        near=near(trajectory.goal, failed),
    )


def _code(arguments: str) -> str | None:
    """The command, query or program of a call; None where its arguments are values, of which any may be one's own."""
    value = parsed(arguments)
    if not isinstance(value, dict):
        return arguments if is_code("", arguments) else None
    texts = [each for key, each in value.items() if isinstance(each, str) and is_code(key, each)]
    return texts[0] if len(texts) == 1 else None


def _new_parts(before: str, after: str) -> list[str]:
    """Lines that came; of calls of one line the words that came, with a word before and after."""
    if "\n" in before or "\n" in after:
        had = {each.strip() for each in before.splitlines()}
        return [each for each in dict.fromkeys(map(str.strip, after.splitlines())) if each and each not in had]
    old, new = _TOKEN.findall(before)[:MAX_TOKENS], _TOKEN.findall(after)[:MAX_TOKENS]
    runs = [code for code in opcodes(old, new) if code[4] > code[3]]
    parts = ["".join(new[max(0, c - _AROUND) : d + _AROUND]).strip() for tag, _, _, c, d in runs if tag != "equal"]
    return list(dict.fromkeys(parts))


def _change(how: str, parts: Iterable[str]) -> str:
    """As many parts as fit."""
    shown: list[str] = []
    for part in parts:
        text = f"{how} `{' '.join(part.replace('`', chr(39)).split())}`"
        if len(", ".join((*shown, text))) <= MAX_CHANGE:
            shown.append(text)
    return ", ".join(dict.fromkeys(shown))
