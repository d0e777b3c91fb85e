"""Say after a failure what got others past one like it: at most one way out, or nothing.

What was changed in the calls of others is ranked by a logistic model over a few figures of likeness and evidence, and
said only where it is likely enough to be what this session needs. Where the place (a database, a repository) is known
and the failed call holds a name that does not work there, the names that do work are said instead.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import log, log1p
from typing import NamedTuple

import numpy as np

from fleetlore.calls.card import card
from fleetlore.calls.context import hash_of
from fleetlore.calls.likeness import FailureWords, read_parts, words
from fleetlore.calls.nearest import Example, Near, new_part
from fleetlore.calls.places import PlaceNames
from fleetlore.fingerprint.fingerprint import Failure, is_free_text
from fleetlore.fingerprint.names import failure_kind
from fleetlore.recall.index import LoreIndex
from fleetlore.wire.lore import MemoryItem

MAX_TEXT = 300
CANDIDATES = 20
# Chance that a way out brings all that the session lacks, from which it is said.
LEAST_CHANCE = 0.3
# A place of which less is known has no card.
PLACE_SESSIONS = 5
# What cannot be ranked rests on its evidence.
LEAST_AGENTS = 2
PLACE_ID = "place:names"

# Of the agents that got past a failure the same way, so many count as its voters.
_VOTERS = 5
_ALL = ""

# What may stand for one task or one person only: quoted texts, numbers, and words with a digit in them.
_LITERAL = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|(?<!\w)\w*\d[\w.]*")
_MASK = "<value>"
_MAX_HELD = 8192


@dataclass(frozen=True, slots=True)
class FailedCall:
    """A call that failed, and what its session knows.

    Attributes:
        text: of the arguments (`fleetlore.calls.context.text_of`).
        error: what the environment said.
        session: its id; what it alone has taught the fleet is left out.
        seen: lower-case names in its results and in its calls so far.
        cause: id of what made it fail (`fleetlore.fingerprint.fingerprint.cause_of`).
    """

    text: str
    error: str
    failure: Failure
    goal: str = ""
    session: str = ""
    seen: Collection[str] = ()
    cause: str = ""


class WayOut(NamedTuple):
    """What to say.

    Attributes:
        text: one or two lines, at most 300 characters; every literal in it is one that the session holds.
        id: of the item, or `PLACE_ID`: for the holdout and the credit.
        names: what it brings that the session has not seen, lower-case.
        chance: that it brings all that the session lacks, 0..1; 0 where it was not ranked.
        item: that it is of; None of a card.
    """

    text: str
    id: str
    names: tuple[str, ...]
    chance: float = 0.0
    item: MemoryItem | None = None


def way_out(
    index: LoreIndex, failed: FailedCall, place: PlaceNames | None = None, told: Collection[str] = ()
) -> WayOut | None:
    """At most one way out of a failure; None where nothing is likely enough to help. No network.

    Args:
        place: names of the place that the session is at; None where that is not known.
        told: ids of ways out that the session was told before; they are passed over.
    """
    if failed.failure.transient:
        return None
    known = place if place is not None and place.sessions >= PLACE_SESSIONS and PLACE_ID not in told else None
    if known is not None and _is_unknown_there(failed, known):
        names = card(known, failed.goal, failed.text, failed.seen)
        if names:
            return WayOut(_card_text(names), PLACE_ID, tuple(names))
    best = ranked(index, failed, told)
    if best is None or best[1] < LEAST_CHANCE:
        return _best_backed(index, failed, told)
    (item, _, change, *_), likely = best
    change = masked(change, failed)
    return WayOut(_text(change, item), item.id, tuple(words(new_part(change))), likely, item)


def _best_backed(index: LoreIndex, failed: FailedCall, told: Collection[str]) -> WayOut | None:
    """What got others past this very failure, where words cannot rank it: it is no change of the call (a look-up, a
    call that prepares, a wait), and several agents did it; or the call is no free text.
    """
    is_text = is_free_text(failed.failure.shape)
    for item in (*index.recoveries(failed.failure.class_), *index.remedies(failed.cause)):
        if is_text and (item.near or item.agents < LEAST_AGENTS):
            continue
        if item.id not in told and not is_own(item, failed.session):
            return WayOut(_text(masked(item.title, failed), item), item.id, (), item=item)
    return None


def ranked(index: LoreIndex, failed: FailedCall, told: Collection[str] = ()) -> tuple[Example, float] | None:
    """The likeliest way out and its chance, however small; None where nothing is known of the tool."""
    asked = FailureWords.of(failed.goal, failed.text, failed.error, failed.failure)
    near = index.recoveries_near(failed.failure.tool, asked, CANDIDATES)
    scored = [
        (likely, example)
        for example, likely in zip(near.examples, chances(figures(near, asked, failed)), strict=True)
        if example.item.id not in told and not is_own(example.item, failed.session)
    ]
    best = min(scored, key=lambda each: (-each[0], each[1].item.id), default=None)
    return (best[1], best[0]) if best is not None else None


class Figures(NamedTuple):
    """By what a way out is ranked.

    Attributes:
        goal, call, error: cosines of the words of both failures.
        same_kind: both errors are the same without their names.
        same_names: share of the names that the error is about that the other error was about too.
        brings_names: all these names came with the change.
        vote: share of the candidates (by agents) that bring the most common word that this one brings.
        least_vote: the same of the rarest word.
        new, nothing_new: logarithm of the number of words that the session has not seen; there are none.
        known: share of the words of the change that the goal, the call or the error hold.
        agents: logarithm of how many agents got past it so.
        alike: logarithm of how many candidates bring the same words.
    """

    goal: float
    call: float
    error: float
    same_kind: float
    same_names: float
    brings_names: float
    vote: float
    least_vote: float
    new: float
    nothing_new: float
    known: float
    agents: float
    alike: float


# Learned from logs of Python agents: means over three splits by agent and task.
BIAS = -5.36
WEIGHTS = Figures(
    goal=0.95,
    call=0.42,
    error=1.49,
    same_kind=0.34,
    same_names=0.83,
    brings_names=2.44,
    vote=1.04,
    least_vote=-2.8,
    new=0.1,
    nothing_new=-1.25,
    known=2.37,
    agents=0.49,
    alike=0.43,
)


def figures(near: Near, asked: FailureWords, failed: FailedCall) -> list[Figures]:
    """Figures of each candidate for a failure."""
    votes: Counter[str] = Counter()
    for example in near.examples:
        voters = min(max(1, example.item.agents), _VOTERS)
        votes[_ALL] += voters
        for word in example.added:
            votes[word] += voters
    alike = Counter(example.added for example in near.examples)
    names = frozenset(asked.names)
    parts = read_parts(failed.goal, failed.text, failed.error)
    texts = frozenset(word for part in parts for word in words(part))
    found = []
    for place, example in enumerate(near.examples):
        added = example.added
        new = [word for word in added if word not in texts and word not in failed.seen]
        of_new = [votes[word] / votes[_ALL] for word in new] or [0.0]
        found.append(
            Figures(
                goal=float(near.goal[place]),
                call=float(near.call[place]),
                error=float(near.error[place]),
                same_kind=float(example.words.kind == asked.kind),
                same_names=len(names.intersection(example.words.names)) / (1 + len(names)),
                brings_names=float(bool(names) and names <= {hash_of(word) for word in example.came}),
                vote=max(of_new),
                least_vote=min(of_new),
                new=log1p(len(new)),
                nothing_new=float(not new),
                known=len(added & texts) / (1 + len(added)),
                agents=log(max(1, example.item.agents)),
                alike=log(alike[added]),
            )
        )
    return found


def chances(of: Sequence[Figures]) -> list[float]:
    """Chance of each that it brings all that the session lacks, 0..1."""
    scores = BIAS + np.array(of, np.float64).reshape(-1, len(WEIGHTS)) @ np.array(WEIGHTS)
    rounded: list[float] = np.round(1.0 / (1.0 + np.exp(-np.clip(scores, -30.0, 30.0))), 9).tolist()
    return rounded


def is_own(item: MemoryItem, session: str) -> bool:
    """Whether only this session backs the item, or a part of it: a long one is worked on in parts, `session#1`."""
    return item.support <= 1 and any(each == session or each.startswith(f"{session}#") for each in item.sessions)


def masked(change: str, failed: FailedCall) -> str:
    """The change with `<value>` for each literal that this session does not hold."""
    held = "\n".join(text[:_MAX_HELD] for text in (failed.goal, failed.text, failed.error)).lower()

    def shown(match: re.Match[str]) -> str:
        text = match.group()
        if text[0] not in "'\"":
            return text if len(text) == 1 or text.lower() in held else _MASK
        return text if text[1:-1].lower() in held else f"{text[0]}{_MASK}{text[0]}"

    return _LITERAL.sub(shown, change)


def _is_unknown_there(failed: FailedCall, place: PlaceNames) -> bool:
    """Whether the error is about a name of the call that mostly fails at the place, or was never met there."""
    kind = failure_kind(failed.failure.error_class, failed.failure.template, failed.error, failed.text)
    return any(ended.failed >= ended.worked for name in kind.names if (ended := place.ended(name)))


def _card_text(names: list[str]) -> str:
    said = f"Known here: {', '.join(names)}"
    while len(said) > MAX_TEXT:
        names.pop()
        said = f"Known here: {', '.join(names)}"
    return said


def _text(change: str, item: MemoryItem) -> str:
    who = "seen once" if item.agents <= 1 else f"{item.agents} agents"
    said = f"Past a failure like this ({who}): {change}"
    return said if len(said) <= MAX_TEXT else f"{said[: MAX_TEXT - 1]}…"
