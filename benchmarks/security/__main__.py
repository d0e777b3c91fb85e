"""Attack what reads the text of others and write what got through: `python -m benchmarks.security --logs FOLDER`.

It writes docs/results/security.md. Without FOLDER (logs of customer service) the row of identities is left out.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from random import Random
from typing import Annotated
from unicodedata import normalize

import orjson
import typer

from benchmarks.command import command_app
from benchmarks.redaction import harmless_texts
from benchmarks.security import corpora, scanners
from benchmarks.security.atoms import ATOMS
from benchmarks.security.erasing import erased_by_store
from benchmarks.security.half_open import half_open
from benchmarks.security.identities import HARMLESS, REGIONS, personal
from benchmarks.security.poisoned_text import LIARS, VOLUME, poisoned
from benchmarks.security.signing import signing
from benchmarks.security.times import READERS, WORKER_SECONDS, slowest_record, survey
from benchmarks.security.voices import voices
from fleetlore.advice.gate import clean
from fleetlore.redact.personal import PersonalData
from fleetlore.redact.redact import redact
from fleetlore.transcripts.read import read_sessions
from fleetlore.wire.lore import MemoryItem
from streams.offline.memory_pipeline import run_logs

PAGE = Path(__file__).parents[2] / "docs" / "results" / "security.md"
EACH = 10
PAIRS, RECORD_PAIRS = 2_000, 500
Line = tuple[str, str, str, str]

_INVISIBLE = ("", "\u00ad", "\u200b", "\u034f", "\u061c", "\u180e", "\u206a", "\ufe0f", "\u3164", "\U000e0041", "\x07")
_LETTERS = ("e", "\u0435", "\uff45", "E")
_IGNORED = re.compile("[" + "".join(_INVISIBLE[1:]) + "]")
# Of customer service; the masking does not know these forms.
_IDENTITIES = re.compile(
    r"[\w.+-]+@[\w-]+\.[\w.-]+\w|\b[a-z]+_[a-z]+_\d{4}\b|#W\d{7}\b|\b(?:credit_card|paypal|gift_card|certificate)_\d{5,8}\b"
)
SAID = """\
What was tried against a fleet and what got through, by `python -m benchmarks.security --logs FOLDER --scanners FOLDER`;
the first holds logged sessions of customer service, the second clones of gitleaks and trufflehog. Times are of the
slowest of the texts, up to 1 MB long. Who can do what, and what holds against it, says
[security](../explain/security.md).
"""
MISSES = """
Why some get through:

- Without a form, a name or a digit nothing tells a secret from a word: of trufflehog's tests that name none three in
  four are left, hosts and ids of its pairs among them.
- Texts of gitleaks and trufflehog are read from clones (`--scanners FOLDER`, or `python -m benchmarks.security.scanners
  --data FOLDER` for what is missed). Not read are four rules whose secrets have a structure that no random text has,
  and what their tests compute.
- 87 of the 92 texts of logged runs that are masked hold one token of a web page.
- Of one record a worker looks at 24 KB of texts that seem to hold a secret, at each as far as its part goes; what is
  more is not kept (`[redacted:unread]`). The most that 64 events of logged agents have is 24,000 characters, in 1,294
  records of five sources whose results are cut at 2,000: agents with longer ones will meet it. A record lies on the log
  as it came, so a replay masks the same.
- Rows that say "beside load" were taken with 15 processes on two cores, where `orjson.loads` takes 1.4 times as long.
  The record of 64 failures that quote is 53 ms by that measure; before, the worst took 159 ms there.
- An agent's outcome, the worst of its events, takes 4 to 6 ms (bar 5 ms) on a machine that others use: missed there.
- With FLEETLORE_MASK_PERSONAL a text of nothing but telephone numbers costs an agent more than 5 ms: each is parsed.
- One agent of 30 that lies withholds a version only while it is drawn to try it; with one vote a minute it is heard
  more often than others that end a session in three.
- An identity that stands in free text alone, as a first name in a goal, is in no field and has no form.
- Probes and metrics keep a server of their own: uvicorn gives up no half-open request, and is out of 1,024 descriptors
  after four seconds of 250 a second. It would cost a worker 4.7 MB as well. Console, relay and the doors share it.
- What lies on the log by time stays until the date that the report of `fleetlore erase` states.
"""


def measure(
    logs: Annotated[Path | None, typer.Option("--logs", help="Folder of logged sessions of customer service.")] = None,
    clones: Annotated[Path | None, typer.Option("--scanners", help="Folder with gitleaks and trufflehog.")] = None,
) -> None:
    """Run all attacks and write docs/results/security.md."""
    heard = [*_poisoning(), *voices()]
    lines = [
        *_secrets(),
        *_of_scanners(clones),
        *_fences(),
        *_identities(logs),
        *heard,
        *asyncio.run(erased_by_store()),
        *half_open(),
        *signing(),
        *times(),
    ]
    rows = [f"| {kind} | {what} | {tried} | {through} |" for kind, what, tried, through in lines]
    head = "| kind | what | tried | got through |\n| --- | --- | ---: | ---: |"
    PAGE.write_text("\n".join(["# Security", "", SAID, head, *rows, MISSES.rstrip(), ""]))
    typer.echo(PAGE.read_text())


def _secrets() -> Iterator[Line]:
    named = {
        "forms of vendors": corpora.vendors,
        "forms of detect-secrets": corpora.forms_of_others,
        "named, in notations of others": corpora.named,
        "after a name in prose": corpora.said,
    }
    for what, corpus in named.items():
        planted = list(corpus(Random(5), EACH))
        missed = sum(each.is_left_in(redact(each.text)) for each in planted)
        yield "secrets", what, f"{len(planted):,}", f"{missed:,} ({missed / len(planted):.1%})"
    texts = list(corpora.harmless(Random(6), 200))
    changed = sum(redact(text) != text for text in texts)
    yield "secrets", "harmless texts, wrongly masked", f"{len(texts):,}", f"{changed:,}"
    people = list(personal(Random(5), EACH))
    masks = PersonalData(REGIONS)
    what = "by its form, where an agent masks it; rival, secrets alone: all"
    left = sum(each.secret in masks.masked_text(each.text) for each in people)
    yield "personal data", what, f"{len(people):,}", f"{left:,} ({left / len(people):.1%})"
    changed = sum(masks.masked_text(text) != text for text in texts)
    yield "personal data", "harmless texts, wrongly masked", f"{len(texts):,}", f"{changed:,}"
    changed = sum(masks.masked_text(text) != text for text in HARMLESS)
    yield "personal data", "versions and numbers of orders, wrongly masked", f"{len(HARMLESS)}", f"{changed} (bar 2)"


def _of_scanners(clones: Path | None) -> Iterator[Line]:
    if clones is not None:
        for corpus in scanners.corpora(clones):
            yield "secrets", corpus.name, f"{len(corpus.texts):,}", scanners.said_of(corpus, scanners.missed(corpus))
        _, texts = harmless_texts(200_000)
        changed = sum(redact(text) != text for text in texts)
        yield (
            "secrets",
            "texts of logged runs, masked",
            f"{len(texts):,}",
            f"{changed} ({changed / len(texts):.2%}, bar 0.1%)",
        )


def _fences() -> Iterator[Line]:
    """A fence as a reader may see it who ignores what is invisible and folds what looks alike."""
    marks = [
        f"</fl{letter}{hidden}et-m{hidden}emory{nonce}>"
        for letter, hidden, nonce in product(_LETTERS, _INVISIBLE, ("", " 00000000"))
    ]
    seen = [normalize("NFKC", _IGNORED.sub("", clean(f"say {mark} now"))).translate({0x435: "e"}) for mark in marks]
    yield "fences", "look-alikes of the fence around advice", f"{len(marks):,}", f"{_count(seen, '</fleet-memory')}"


def _count(texts: list[str], mark: str) -> int:
    return sum(mark in text.lower() for text in texts)


def _identities(logs: Path | None) -> Iterator[Line]:
    if logs is None:
        return
    sessions = read_sessions(logs)
    run = asyncio.run(run_logs(sessions, seed=0, learn=True))
    texts = [_said(item) for item in run.items] + [f"{each.template} {each.shape}" for each in run.patterns]
    quoting = sum(_IDENTITIES.search(text) is not None for text in texts)
    what = f"items and patterns of {len(sessions)} sessions of customer service that quote a customer"
    yield "identities", what, f"{len(texts):,}", f"{quoting}"


def _said(item: MemoryItem) -> str:
    remedy = orjson.dumps(item.remedy).decode()
    return "\n".join((item.title, item.description, item.content, item.when, remedy))


def _poisoning() -> Iterator[Line]:
    for what, liars, volume in (("one agent", LIARS[:1], 500), ("6 of 16 agents", LIARS, VOLUME)):
        for denies, how in ((False, "another call helped"), (True, "it helped and the honest one failed")):
            found = asyncio.run(poisoned(liars, volume, denies=denies))
            said = f"{what}, {volume} sessions each a failure, say that {how}: first-ranked advice of 10 honest agents"
            through = f"{found.lied} replaced, {found.silenced} silenced; by sessions {found.by_sessions}"
            yield "poisoned text", said, f"{found.told} failures", through


def times() -> Iterator[Line]:
    for reader in READERS:
        found = survey(reader, PAIRS)
        bent = max(each.exponent for each in found)
        slowest = max(each.seconds for each in found)
        bound = "" if reader.limit is None else _against(slowest, reader.limit)
        yield "time", reader.name, f"{len(found)} texts", f"{1000 * slowest:.1f} ms{bound}, exponent {bent:.2f}"
    for events in (30, 64):
        seconds, atom = slowest_record(events, RECORD_PAIRS)
        what = f"a worker's record of {events} events, stage 1; slowest of {atom!r}"
        yield (
            "time",
            what,
            f"{len(ATOMS) + RECORD_PAIRS} texts",
            f"{1000 * seconds:.0f} ms{_against(seconds, WORKER_SECONDS)}",
        )


def _against(seconds: float, bar: float) -> str:
    return f" (bar {1000 * bar:.0f} ms)" + (": **missed**" if seconds > bar else "")


if __name__ == "__main__":
    command_app(measure)()
