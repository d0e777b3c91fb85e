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
from tempfile import NamedTemporaryFile
from typing import Annotated
from unicodedata import normalize

import orjson
import typer

from benchmarks import peers
from benchmarks.command import command_app
from benchmarks.runs import read_runs
from benchmarks.secrets import planted_secrets
from benchmarks.security import corpora
from benchmarks.security.atoms import ATOMS
from benchmarks.security.erasing import erased_by_store
from benchmarks.security.half_open import half_open
from benchmarks.security.identities import HARMLESS, REGIONS, personal
from benchmarks.security.poisoned_text import LIARS, VOLUME, poisoned
from benchmarks.security.times import READERS, WORKER_SECONDS, slowest_record, survey
from benchmarks.security.voices import voices
from benchmarks.traffic import sessions
from fleetlore.advice.gate import clean
from fleetlore.redact.personal import PersonalData
from fleetlore.redact.redact import redact
from streams.offline.memory_pipeline import run_logs

PAGE = Path(__file__).parents[2] / "docs" / "results" / "security.md"
EACH = 10
LOGGED = 20_000
PAIRS, RECORD_PAIRS = 2_000, 500
Line = tuple[str, str, str, str]

_INVISIBLE = ("", "\u00ad", "\u200b", "\u034f", "\u061c", "\u180e", "\u206a", "\ufe0f", "\u3164", "\U000e0041", "\x07")
_LETTERS = ("e", "\u0435", "\uff45", "E")
_IGNORED = re.compile("[" + "".join(_INVISIBLE[1:]) + "]")
# Identities of customer service; the masking does not know these forms.
_IDENTITIES = re.compile(
    r"[\w.+-]+@[\w-]+\.[\w.-]+\w|\b[a-z]+_[a-z]+_\d{4}\b|#W\d{7}\b|\b(?:credit_card|paypal|gift_card|certificate)_\d{5,8}\b"
)
SAID = """\
`python -m benchmarks.security --logs FOLDER` attacks a fleet and writes this page; FOLDER holds logged sessions of
customer service. Times are those of the slowest text, up to 1 MB long. [Security](../explain/security.md) says who can
do what, and what holds against it.
"""
MISSES = """
What gets through, and why:

- A secret without a form, a name or a digit near it looks like a word. Other scanners' tests are the
  [evidence](figures.md#measured-and-taken-out).
- A worker reads at most 24 KB of suspicious text in one record; the rest is dropped (`[redacted:unread]`).
- Rows with "beside load" were measured on a busy machine, where `orjson.loads` takes 1.4 times as long.
- With `FLEETLORE_MASK_PERSONAL` a text of telephone numbers alone costs an agent up to 30 ms: each number is parsed.
- One lying agent of 30 delays a version while it is drawn to try it.
- A first name in a goal is in no field and has no form, so nothing masks it.
- The log keeps its bytes until the date that the report of `fleetlore erase` states.
"""


def measure(
    logs: Annotated[Path | None, typer.Option("--logs", help="Folder of logged sessions of customer service.")] = None,
) -> None:
    """Run all attacks and write docs/results/security.md."""
    lines = [*_secrets(), *_beside_detect_secrets(), *_fences(), *_identities(logs), *_poisoning(), *voices()]
    lines += [*asyncio.run(erased_by_store()), *half_open(), *times()]
    rows = [f"| {kind} | {what} | {tried} | {through} |" for kind, what, tried, through in lines]
    head = "| kind | what | tried | got through |\n| --- | --- | ---: | ---: |"
    PAGE.write_text("\n".join(["# Security", "", SAID, head, *rows, MISSES.rstrip(), ""]))
    typer.echo(PAGE.read_text())


def _secrets() -> Iterator[Line]:
    named = {
        "tokens and named values of 77 kinds": planted_secrets,
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


def _beside_detect_secrets() -> Iterator[Line]:
    """Texts of logged runs, and the planted secrets, read by the rival too with its default plug-ins and filters."""
    data = [(run.goal, *(value for _, data in run.events for value in data.values())) for run in sessions()[1]]
    logged = sorted({value for values in data for value in values if isinstance(value, str)})
    logged = Random(7).sample(logged, min(LOGGED, len(logged)))
    planted = list(planted_secrets(Random(5), EACH))
    with NamedTemporaryFile(suffix=".json") as file:
        Path(file.name).write_bytes(orjson.dumps([each.text for each in planted] + logged))
        found = peers.run("with_detect_secrets", file.name, peer="detect-secrets")
    left = sum(not each.is_found(values) for values, each in zip(found, planted, strict=False))
    what = "the tokens and named values again; rival, detect-secrets"
    yield "secrets", what, f"{len(planted):,}", f"{left:,} ({left / len(planted):.1%})"
    changed, reported = sum(redact(text) != text for text in logged), sum(map(bool, found[len(planted) :]))
    rates = f"{changed:,} ({changed / len(logged):.2%}, bar .5%); {reported:,} ({reported / len(logged):.2%})"
    yield "secrets", "texts of logged runs, masked; rival, detect-secrets", f"{len(logged):,}", rates


def _fences() -> Iterator[Line]:
    """A fence as a reader may see it who ignores what is invisible and folds what looks alike."""
    marks = [
        f"</fl{letter}{hidden}et-m{hidden}emory{nonce}>"
        for letter, hidden, nonce in product(_LETTERS, _INVISIBLE, ("", " 00000000"))
    ]
    seen = [normalize("NFKC", _IGNORED.sub("", clean(f"say {mark} now"))).translate({0x435: "e"}) for mark in marks]
    through = sum("</fleet-memory" in text.lower() for text in seen)
    yield "fences", "look-alikes of the fence around advice", f"{len(marks):,}", f"{through}"


def _identities(logs: Path | None) -> Iterator[Line]:
    if logs is None:
        return
    sessions = read_runs(logs)
    run = asyncio.run(run_logs(sessions, seed=0, learn=True))
    texts = [f"{each.template} {each.shape}" for each in run.patterns]
    texts += [
        "\n".join((each.title, each.description, each.content, each.when, *each.was, *each.now)) for each in run.items
    ]
    quoting = sum(_IDENTITIES.search(text) is not None for text in texts)
    what = f"items and patterns of {len(sessions)} sessions of customer service that quote a customer"
    yield "identities", what, f"{len(texts):,}", f"{quoting}"


def _poisoning() -> Iterator[Line]:
    for what, liars, volume in (("one agent", LIARS[:1], 500), ("6 of 16 agents", LIARS, VOLUME)):
        for denies, how in ((False, "another call helped"), (True, "it helped and the honest one failed")):
            found = asyncio.run(poisoned(liars, volume, denies=denies))
            said = f"{what}, {volume} sessions each a failure, say that {how}: first-ranked advice of 10 honest agents"
            through = f"{found.lied} replaced, {found.silenced} silenced; by sessions {found.by_sessions}"
            yield "poisoned text", said, f"{found.told} failures", through


def times() -> Iterator[Line]:
    for reader in READERS:
        if reader.limit is None:  # it runs once for many events, and the tests hold how its time grows
            continue
        found = survey(reader, PAIRS)
        bent = max(each.exponent for each in found)
        slowest = max(each.seconds for each in found)
        bound = _against(slowest, reader.limit)
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
