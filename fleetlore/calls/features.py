"""Hash a call that is about to be made into features: its words, its names, and the session's history.

Each group of features is scaled by the root of its size, so that a long call does not weigh more than a short one. The
crosses are hashed too (Weinberger et al., Feature Hashing for Large Scale Multitask Learning, 2009).
"""

from __future__ import annotations

from itertools import pairwise
from math import log2
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fleetlore.calls.call import MadeCall
from fleetlore.calls.context import CallContext, Ids, hash_of, hashes_of, normal
from fleetlore.calls.places import PlaceNames

__all__ = ["Features", "features"]

# Version of the features. Models with another version are unreadable.
FEATURES = 4
_MAX_NAMES = 14
FIRST_WORDS, LAST_WORDS, LINE = 6, 4, 200
GOAL_WORDS, GOAL_NAMES = 16, 10

_ODD = np.uint32(0x9E3779B1)
_ODD2 = np.uint32(0x85EBCA6B)
_NEXT = np.uint32(0x27D4EB2F)


class Features(NamedTuple):
    """ids: uint32 (n,); values: float32 (n,). The first `of_kind` also tell kinds of failure apart."""

    ids: Ids
    values: npt.NDArray[np.float32]
    of_kind: int


def mixed(ids: Ids, salt: Ids | np.uint32) -> Ids:
    """Hash the hashes again with a salt (the finaliser of MurmurHash3)."""
    ids = (ids ^ salt) * _ODD
    ids ^= ids >> np.uint32(15)
    ids *= _ODD2
    ids ^= ids >> np.uint32(13)
    return ids


_Group = tuple[Ids, float]


def features(call: MadeCall, context: CallContext, known: PlaceNames | None = None) -> Features:
    tokens = hashes_of(call.tokens or [""])
    names = hashes_of(call.names[:_MAX_NAMES])
    unique = np.array(list(dict.fromkeys(tokens.tolist())), np.uint32)
    last = np.uint32(hash_of(context.last))
    groups: list[_Group] = [
        (unique, 2.0),
        (np.unique(tokens[:-1] * np.uint32(3) + tokens[1:] * _NEXT), 2.0),
        (context.last_words + np.uint32(context.last[0] == "E"), 1.0),
        (_overlap(call.names, context), 1.0),
        (_course(call, context), 1.5),
        (_ends(call), 1.5),
        (hashes_of([mark.text for mark in context.objects.marks(call.json)]), 2.0),
    ]
    of_kind = sum(len(ids) for ids, _ in groups)
    groups += [
        (_pairs(names), 1.0),
        (context.goal, 0.7),
        ((context.goal[:GOAL_WORDS, None] * np.uint32(5) + names[None, :GOAL_NAMES] * _ODD2).ravel(), 1.0),
        (unique[:80] ^ last, 1.0),
        (_unset(call, context), 1.0),
    ]
    if known is not None and known.sessions:
        groups.append((_known(call.names, known), 0.8 * 5**0.5))
    lengths = [len(ids) for ids, _ in groups]
    salt = hash_of("T" + call.tool)
    salts = np.array([(salt + 0x61C88647 * number) & 0xFFFFFFFF for number in range(len(groups))], np.uint32)
    scales = np.array([weight / (len(ids) or 1) ** 0.5 for ids, weight in groups], np.float32)
    ids = mixed(np.concatenate([ids for ids, _ in groups]), np.repeat(salts, lengths))
    return Features(ids, np.repeat(scales, lengths), of_kind)


def _pairs(names: Ids) -> Ids:
    left, right = _TRIANGLES[len(names)]
    first, second = names[left], names[right]
    return (first ^ second) + first * second


_TRIANGLES = [np.triu_indices(size, 1) for size in range(_MAX_NAMES + 1)]


def _overlap(names: list[str], context: CallContext) -> Ids:
    found: list[str] = []
    counts = [0] * 5
    for name in names:
        if name in context.failed:
            where = 0
        elif name in context.worked:
            where = 1
        elif name in context.seen:
            where = 2
        elif name in context.goal_words:
            where = 3
        else:
            where = 4
        counts[where] += 1
        found.append(f"O{where} {name}")
    found += [f"C{where} {min(count, 4)}" for where, count in enumerate(counts)]
    return hashes_of(found)


def _ends(call: MadeCall) -> Ids:
    head, tail = call.text[:LINE].partition("\n")[0], call.text[-LINE:].rpartition("\n")[2]
    return hashes_of(
        [
            *(f"first {token}" for token in call.tokens[:FIRST_WORDS]),
            *(f"last {token}" for token in call.tokens[-LAST_WORDS:]),
            f"line {head.strip()}",
            f"line {tail.strip()}",
        ]
    )


def _unset(call: MadeCall, context: CallContext) -> Ids:
    tokens = [token.lower() for token in call.tokens]
    set_here = {name for name, after in pairwise(tokens) if after == "="}
    set_here |= {name for before, name in pairwise(tokens) if before in _SETS}
    unset = [name for name in call.names if name not in set_here and name not in context.worked]
    return hashes_of([f"unset {min(len(unset), 8)}", *(f"unset {name}" for name in unset[:30])])


_SETS = frozenset(["import", "as", "for", "def", "class", "function", "let", "const", "var"])


def _course(call: MadeCall, context: CallContext) -> Ids:
    tried = context.tried.get(normal(call.tool, call.json))
    again = "n" if tried is None else "f" if tried else "w"
    failed = sum(name in context.failed for name in call.names)
    met = context.goal_words, context.worked, context.seen, context.failed
    new = sum(not any(name in names for names in met) for name in call.names)
    last, run, calls = context.last, min(context.run, 4), context.calls
    return hashes_of(
        [
            f"L{last}",
            f"n{min(calls, 4)}",
            f"f{min(context.failures, 4)}",
            f"r{run}",
            f"rep{again}",
            f"len{min(12, int(log2(len(call.text) + 1)))}",
            f"L{last}|rep{again}",
            f"L{last}|bad{min(failed, 2)}",
            f"nl{min(6, call.text.count(chr(10)))}",
            f"un{min(new, 4)}|n{min(calls, 2)}",
            f"r{run}|rep{again}",
        ]
    )


_SESSIONS = (5, 20, 60)


def _known(names: list[str], known: PlaceNames) -> Ids:
    bad, good, both, unknown = known.counts(names)
    sure = f"k{sum(known.sessions >= least for least in _SESSIONS)}"
    return hashes_of(
        [
            f"MB{min(bad, 3)}{sure}",
            f"MG{min(good, 5)}{sure}",
            f"MU{min(unknown, 4)}{sure}",
            f"MBU{min(bad, 1)}{min(unknown, 2)}{sure}",
            f"MX{min(both, 3)}{sure}",
        ]
    )
