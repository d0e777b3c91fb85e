"""Extract the critic's features: hashed words of what was said, called and returned, and how the steps relate.

Hashing needs no vocabulary: a critic is an array of weights, and an unknown word does no harm. Each field (goal, calls,
results, …) is a vector of length 1, or one long result would drown all else; that alone is worth 7 points of AUROC over
one TF-IDF vector. No feature reads how the session ended, its reward, feedback or length: counts are shares, or stop at
4.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import log1p
from typing import Final, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from fleetlore.wire.trajectory import Step, Trajectory
from models.judge.prefix import first_steps

BITS: Final = 18
WORD_BITS: Final = 18
# Characters read of a text: its beginning, and its end, where errors and answers stand.
HEAD, TAIL = 700, 300
FIELDS: Final = ("goal", "call", "result", "message", "order", "agent", "state")
# The parts of an agent's name ("7b", "react") inform, but must not outweigh the steps.
AGENT_WEIGHT = 0.5
MOST = 4

_WORD = re.compile(r"[A-Za-z_]+|\d+|[^\sA-Za-z_\d]")
_NAME_PART = re.compile(r"[a-z]+|\d+b?")
_ROWS = re.compile(r"\s*\[?\(")
_NOTHING = frozenset({"", "[]", "{}", "()", "None", "null", '""'})
_SORRY = re.compile(r"\b(?:apologi[sz]e|sorry)\b", re.I)

Hashes = npt.NDArray[np.uint32]
Indices = npt.NDArray[np.int32]
Values = npt.NDArray[np.float32]


@lru_cache(maxsize=65_536)
def _hash(word: str) -> int:
    return crc32(word.encode("utf-8", "surrogatepass"))


def words(text: str) -> list[str]:
    """Words, numbers and signs of the beginning and the end of a text."""
    if len(text) > HEAD + TAIL:
        text = f"{text[:HEAD]} {text[-TAIL:]}"
    return _WORD.findall(text.lower())


def _grams(parts: Iterable[str]) -> Hashes:
    """Hashes of the parts and of each adjacent pair."""
    ones = np.fromiter(map(_hash, parts), np.uint32)
    return np.concatenate([ones, ones[:-1] * np.uint32(0x9E3779B1) ^ ones[1:]]) if len(ones) > 1 else ones


class _Read(NamedTuple):
    """A step with hashes and words of its call and its result (of a message: of its text)."""

    step: Step
    call: Hashes
    result: Hashes
    call_words: frozenset[str]
    result_words: frozenset[str]


def _read(step: Step) -> _Read:
    call, result = words(step.arguments), words(_answer(step))
    if step.role == "tool":
        hashed = _grams([f"tool {step.tool}", *call]), _grams([f"failed {step.failed} {step.tool}", *result])
    else:
        hashed = _grams(()), _grams([f"role {step.role}", *result])
    return _Read(step, *hashed, frozenset(call), frozenset(result))


def features(trajectory: Trajectory, views: Sequence[int | None]) -> list[tuple[Indices, Values]]:
    """Sparse vectors of a session, one a view: places below 2**BITS, which may repeat, and their values.

    Args:
        views: number of tool steps of each; None for the complete session.
    """
    cuts = [len(first_steps(trajectory, calls)) for calls in views]
    read = [_read(step) for step in trajectory.steps[: max(cuts, default=0)]]
    goal = words(trajectory.goal)
    fixed = {"goal": _grams(goal), "agent": _grams(_NAME_PART.findall(trajectory.agent.lower()))}
    return [_vector(read[:cut], frozenset(goal), fixed) for cut in cuts]


def _vector(read: Sequence[_Read], goal: frozenset[str], fixed: dict[str, Hashes]) -> tuple[Indices, Values]:
    calls = [each for each in read if each.step.role == "tool"]
    tools = [each.step.tool + ("!" if each.step.failed else "") for each in calls]
    hashed = fixed | {
        "call": _joined(each.call for each in calls),
        "result": _joined(each.result for each in calls),
        "message": _joined(each.result for each in read if each.step.role != "tool"),
        # A set, since counts would reveal the length of the session.
        "order": np.unique(_grams(["^", *tools, "$"])),
        "state": np.fromiter(map(_hash, _state(goal, read, calls)), np.uint32),
    }
    places, values = [], []
    for number, field in enumerate(FIELDS):
        mixed = (hashed[field] ^ np.uint32(0x85EBCA6B * (number + 1) & 0xFFFFFFFF)) * np.uint32(0x9E3779B1)
        place, count = np.unique(mixed >> np.uint32(32 - BITS), return_counts=True)
        value = (1 + np.log(count)).astype(np.float32)
        value *= (AGENT_WEIGHT if field == "agent" else 1.0) / max(float(np.sqrt(value @ value)), 1e-9)
        places.append(place.astype(np.int32))
        values.append(value)
    return np.concatenate(places), np.concatenate(values)


def word_places(trajectory: Trajectory) -> Indices:
    """Distinct places below 2**WORD_BITS of the words (no numbers or punctuation) of its goal, calls and results."""
    found = {word for step in trajectory.calls for word in words(f"{step.tool} {step.arguments}\n{_answer(step)}")}
    found.update(words(trajectory.goal))
    return np.unique([_hash(word) >> (32 - WORD_BITS) for word in found if word.isalpha()]).astype(np.int32)


def _joined(parts: Iterable[Hashes]) -> Hashes:
    return np.concatenate([np.zeros(0, np.uint32), *parts])


def _answer(step: Step) -> str:
    return step.result or step.error_message or ""


def _state(goal: frozenset[str], read: Sequence[_Read], calls: Sequence[_Read]) -> list[str]:
    """How the calls went and relate, as words `name=level`: for all tools and for the tool called first."""
    if not calls:
        return ["no call"]
    steps = [each.step for each in calls]
    asked = [each.call_words for each in calls]
    answers = [_answer(step).strip() for step in steps]
    last, answer, call_words, answer_words = steps[-1], answers[-1], asked[-1], calls[-1].result_words
    messages = [each.step for each in read if each.step.role not in ("tool", "user")]
    n = len(steps)
    said = Counter(text for text in answers if text)
    made = Counter((step.tool, step.arguments) for step in steps)
    state: dict[str, float] = {
        "failed": sum(step.failed for step in steps) / n,
        "failures": min(MOST, sum(step.failed for step in steps)),
        "first failed": steps[0].failed,
        "last failed": last.failed,
        "last answer length": 2 * log1p(len(answer)),
        "first answer length": 2 * log1p(len(answers[0])),
        "last answer empty": answer in _NOTHING,
        "empty answers": sum(text in _NOTHING for text in answers) / n,
        "rows": log1p(answer.count("), (") + 1) * 2 if _ROWS.match(answer) else -1,
        "columns": answer.split(")", 1)[0].count(",") if _ROWS.match(answer) else -1,
        "last call length": 2 * log1p(len(last.arguments)),
        "first call length": 2 * log1p(len(steps[0].arguments)),
        "lines": min(3 * MOST, last.arguments.count("\n")),
        "repeated calls": 1 - len(made) / n,
        "most repeated call": min(MOST, max(made.values())),
        "most repeated answer": min(MOST, max(said.values(), default=0)),
        "goal in call": _share(goal & call_words, goal),
        "call in goal": _share(goal & call_words, call_words),
        "answer in goal": _share(goal & answer_words, answer_words),
        "goal length": 2 * log1p(len(goal)),
        "tools": min(MOST, len({step.tool for step in steps})),
        "messages": sum(each.step.role != "tool" for each in read) / len(read),
        "last message length": 2 * log1p(len(messages[-1].result)) if messages else -1,
        "sorry": any(_SORRY.search(step.result) for step in messages),
        "other alphabets": not last.arguments[:500].isascii(),
    }
    if n > 1:
        earlier = "\n".join(answers[:-1])
        before = next((text for text in reversed(answers[:-1]) if text), "")
        call = last.arguments.strip()
        state |= {
            "like the call before": _share(call_words & asked[-2], call_words | asked[-2]),
            "like the first call": _share(call_words & asked[0], call_words | asked[0]),
            "call in answers": _share(
                call_words & frozenset().union(*(each.result_words for each in calls[:-1])), call_words
            ),
            "short call was an answer": bool(call) and call in earlier if len(call) < 80 else -1,
            "short call is the answer": call == before if len(call) < 80 else -1,
            "answer as before": answer == answers[-2],
            "tool as before": last.tool == steps[-2].tool,
        }
    levels = [f"{name}={round(float(value) * (4 if abs(value) <= 1 else 1))}" for name, value in state.items()]
    levels.append(f"ended with {read[-1].step.role}")
    return [*levels, *(f"{steps[0].tool}: {level}" for level in levels)]


def _share(part: frozenset[str], whole: frozenset[str]) -> float:
    return len(part) / len(whole) if whole else 0.0
