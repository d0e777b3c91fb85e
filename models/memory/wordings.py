"""Know in which words agents met a failure: an error with a code has one id in any words, so a sender chooses them.

Most agents decide, each with one voice. So no agent speaks for all, and words that only erased sessions had go with
them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from typing import Any, Self

__all__ = ["Wordings", "Words"]

# Words take up to 2 kB in JSON.
_MOST_AGENTS = 12
# Sessions known of an agent that had its words. If all are erased its words go, though a further one may have had them.
_WITNESSES = 4

Words = tuple[bool, str, str, str]  # of `models.memory.pattern_state.Subject`


class Wordings(dict[int, tuple[Words, tuple[int, ...]]]):
    """The smallest words of each agent (hash), with the first sessions (hashes) that had them.

    A function of what was noted. The agents with the smallest hashes are kept.
    """

    def note(self, agent: int, session: int, words: Words) -> bool:
        known, witnesses = self.get(agent, (words, ()))
        if known < words or (known == words and session in witnesses):
            return False
        if not witnesses and len(self) >= _MOST_AGENTS:
            if agent > (largest := max(self)):
                return False
            del self[largest]
        merged = tuple(sorted((*witnesses, session))[:_WITNESSES]) if known == words else (session,)
        self[agent] = words, merged
        return known != words or merged != witnesses

    @property
    def of_most(self) -> Words | None:
        """The words of most agents, on a tie the smallest, or None if there are no words."""
        counts = Counter(words for words, _ in self.values())
        return min(counts, key=lambda each: (-counts[each], each), default=None)

    def others(self, words: Words) -> int:
        return sum(each != words for each, _ in self.values())

    @property
    def sessions(self) -> set[int]:
        return {session for _, witnesses in self.values() for session in witnesses}

    def sessions_of(self, agents: Collection[int]) -> set[int]:
        return {session for agent in agents for session in self.get(agent, ((), ()))[1]}

    def discard(self, sessions: Collection[int]) -> bool:
        if not (gone := self.sessions.intersection(sessions)):
            return False
        for agent, (words, witnesses) in list(self.items()):
            if left := tuple(each for each in witnesses if each not in gone):
                self[agent] = words, left
            else:
                del self[agent]
        return True

    def to_rows(self) -> list[list[Any]]:
        """Rows (words, pairs of agent and sessions), sorted: equal wordings give equal rows."""
        agents = defaultdict[Words, list[tuple[int, tuple[int, ...]]]](list)
        for agent, (words, witnesses) in sorted(self.items()):
            agents[words].append((agent, witnesses))
        return [[*words, pairs] for words, pairs in sorted(agents.items())]

    @classmethod
    def from_rows(cls, rows: Iterable[list[Any]]) -> Self:
        return cls(
            (agent, ((lasting, *rest), tuple(sessions))) for lasting, *rest, pairs in rows for agent, sessions in pairs
        )
