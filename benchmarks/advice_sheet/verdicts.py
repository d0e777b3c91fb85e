"""Hold a person's verdicts on a sheet: ids and one word each, no texts."""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from fleetlore.errors import ConfigError
from fleetlore.stats.intervals import wilson

# What is read, and what may be said of it, with what that means.
RUBRICS: dict[str, dict[str, str]] = {
    "calls": {
        "right": "says what to do here: who follows it avoids this failure, or gets past it",
        "vague": "true, and does not say what to do here",
        "wrong": "false, irrelevant here, or somebody else's: another's names, ids, answers, paths",
        "none": "nothing was said",
    },
    "items": {
        "useful": "tells a fleet that knows its tools something that helps with other tasks too",
        "trivial": "anybody knows it, or it is good for the very same task only",
        "wrong": "false, misleading, somebody else's data, or no advice at all",
    },
}
SILENT = "none"
COLUMNS = ("what", "source", "seed", "id", "verdict")


@dataclass(frozen=True, slots=True)
class Reading:
    """One person's verdicts; `verdicts`: by id, empty where it is still to be given."""

    what: str
    source: str
    seed: int
    verdicts: dict[str, str]

    def write(self, file: Path) -> None:
        with file.open("w", newline="") as lines:
            rows = csv.writer(lines, lineterminator="\n")
            rows.writerow(COLUMNS)
            rows.writerows((self.what, self.source, self.seed, id, verdict) for id, verdict in self.verdicts.items())

    @classmethod
    def read(cls, file: Path) -> Reading:
        """Read a file of verdicts.

        Raises:
            ConfigError: it is none, a verdict is missing, or is no word of the rubric.
        """
        try:
            with file.open(newline="") as lines:
                rows = list(csv.DictReader(lines))
            about = {(row["what"], row["source"], int(row["seed"])) for row in rows}
            verdicts = {row["id"]: row["verdict"].strip().lower() for row in rows}
        except (OSError, KeyError, ValueError, AttributeError) as error:
            raise ConfigError(f"{file} is no file of verdicts: {error!r}") from None
        if len(about) != 1 or len(verdicts) != len(rows) or (found := about.pop())[0] not in RUBRICS:
            raise ConfigError(f"{file} is not of one sheet")
        for id, verdict in verdicts.items():
            if verdict not in RUBRICS[found[0]]:
                words = ", ".join(RUBRICS[found[0]])
                raise ConfigError(f"{file}: the verdict on {id} is {verdict!r}, and not one of {words}")
        return cls(*found, verdicts)


def shares(reading: Reading) -> str:
    """Share of each verdict among those where something was said, with its 95 % interval (Wilson); a line each."""
    counts = Counter(reading.verdicts.values())
    spoken = counts.total() - counts[SILENT]
    lines = []
    if SILENT in RUBRICS[reading.what]:
        lines.append(f"  something said: {_share(spoken, counts.total())}")
    lines += [f"  {word}: {_share(counts[word], spoken)}" for word in RUBRICS[reading.what] if word != SILENT]
    return "\n".join(lines)


def kappa(one: Reading, other: Reading) -> float | None:
    """Agreement of two readings of the same sheet beyond chance (Cohen 1960); None where chance alone always agrees.

    Raises:
        ConfigError: they are of different sheets.
    """
    if (one.what, one.source, one.seed) != (other.what, other.source, other.seed) or set(one.verdicts) != set(
        other.verdicts
    ):
        raise ConfigError("these verdicts are on different sheets")
    total = len(one.verdicts)
    agreed = sum(verdict == other.verdicts[id] for id, verdict in one.verdicts.items()) / total
    mine, theirs = Counter(one.verdicts.values()), Counter(other.verdicts.values())
    chance = sum(mine[word] * theirs[word] for word in mine) / total**2
    return (agreed - chance) / (1 - chance) if chance < 1 else None


def _share(count: int, total: int) -> str:
    low, high = wilson(count, total)
    return f"{count} of {total} ({low:.0%} to {high:.0%})"
