"""Count the planted secrets that redaction masks, and the harmless text.

Planted: texts of `benchmarks.secrets`, each with one secret in a place where agents meet them; a secret counts as
masked when no twelve characters of it in a row are left. Harmless texts are goals, arguments, results and errors of the
logged runs, or of the scripted world without them. Every changed text counts as masked, though some do hold a secret.

detect-secrets (Yelp) runs over the same texts with its default plug-ins and filters.
"""

from __future__ import annotations

import gc
import json
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from itertools import starmap
from random import Random

import orjson

from benchmarks import peers
from benchmarks.report import Report, Row
from benchmarks.rollouts import rollouts
from benchmarks.secrets import WINDOW, Planted, planted_secrets
from benchmarks.traffic import REAL_DATA, TOPIC, traffic
from fleetlore.redact.redact import may_hold_secret, redact
from fleetlore.transcripts.read import read_sessions
from fleetlore.wire.events import BATCH_HEADERS
from streams.stage.base import Effects, Record
from streams.stages.s1_sessions.parse import clean, read_events

SEED = 7
EACH = 20
HARMLESS_TEXTS = 20_000
EVENTS = 20_000
# Records that a worker takes at once.
TAKEN = 16


def run(quick: bool) -> Report:
    """See the module."""
    planted = list(planted_secrets(Random(SEED), 1 if quick else EACH))
    source, harmless = harmless_texts(200 if quick else HARMLESS_TEXTS)
    missed = Counter(each.kind for each in planted if each.is_left_in(redact(each.text)))
    began = time.process_time()
    changed = sum(redact(text) != text for text in harmless)
    seconds = time.process_time() - began
    found = detected([each.text for each in planted] + harmless)
    detect_missed = sum(not hit(values, each) for values, each in zip(found, planted, strict=False))
    detect_changed = sum(map(bool, found[len(planted) :]))
    kinds = len({each.kind for each in planted})
    recall = _percent(len(planted) - missed.total(), len(planted))
    alarms = _percent(changed, len(harmless))
    return Report(
        name="redaction",
        figure=recall,
        bar=99.0,
        unit="% of planted secrets",
        peers={"detect-secrets": _percent(len(planted) - detect_missed, len(planted))},
        reference="detect-secrets",
        rows=(
            Row(name="planted", figure=len(planted), unit="texts", note=f"{kinds} kinds"),
            Row(name="masked", figure=recall, unit="%", note=", ".join(f"missed {n} {k}" for k, n in missed.items())),
            *_event_rows(quick),
            Row(name="a harmless text", figure=seconds / len(harmless) * 1e6, unit="µs of CPU", note="first time seen"),
        ),
        also=(
            Report(
                name="harmless",
                figure=alarms,
                bar=0.5,
                unit="% of harmless texts masked",
                higher_is_better=False,
                peers={"detect-secrets": _percent(detect_changed, len(harmless))},
                rows=(Row(name="harmless", figure=len(harmless), unit="texts", note=f"of {source}"),),
            ),
        ),
    )


def _event_rows(quick: bool) -> tuple[Row, ...]:
    """The cost of an event in an agent's record of 64, and in a worker's batch."""
    sent = traffic(1_000 if quick else EVENTS)
    records = [orjson.loads(each.value) for each in sent.records]
    data = [[orjson.dumps(event["data"]) for event in record] for record in records]
    incoming = [
        read_events(Record(TOPIC, 0, 0, None, each.value, dict(BATCH_HEADERS)), Effects()) for each in sent.records
    ]
    batches = [incoming[start : start + TAKEN] for start in range(0, len(incoming), TAKEN)]
    gc.collect()
    gc.freeze()
    spent = {
        "an agent's event": _seconds(map(may_hold_secret, data)),
        "a worker's event": _seconds(starmap(clean, batches)),
        "thermometer: orjson.loads": _seconds(map(orjson.loads, [each.value for each in sent.records])),
    }
    notes = ("looked through for secrets", "its texts and names made, looked through and masked", sent.describe())
    return tuple(
        Row(name=name, figure=seconds / sent.events * 1e6, unit="µs of CPU", note=note)
        for (name, seconds), note in zip(spent.items(), notes, strict=True)
    )


def _seconds(work: Iterable[object]) -> float:
    began = time.process_time()
    deque(work, maxlen=0)  # what is kept takes longer to make
    return time.process_time() - began


def harmless_texts(limit: int) -> tuple[str, list[str]]:
    """Their source, and at most `limit` of them, each once."""
    texts: dict[str, None] = {}
    if REAL_DATA.is_dir():
        for session in read_sessions(REAL_DATA):
            values = [session.goal, *(value for _, data in session.events for value in data.values())]
            texts |= dict.fromkeys(value for value in values if isinstance(value, str))
        source = "logged runs"
    else:
        for rollout in rollouts(1, 400, seed=SEED):
            values = [
                rollout["goal"],
                *(step[field] for step in rollout["steps"] for field in ("result", "error_message")),
            ]
            texts |= dict.fromkeys(value for value in values if value)
        source = "the scripted world"
    every = list(texts)
    Random(SEED).shuffle(every)
    return source, every[:limit]


def hit(values: Sequence[str], planted: Planted) -> bool:
    """Whether one of the values found is the planted secret, a part of it that matters, or more than it."""
    return any(planted.secret in value or (len(value) >= WINDOW and value in planted.secret) for value in values)


def detected(texts: Sequence[str]) -> list[list[str]]:
    """The findings of detect-secrets in each text."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(list(texts), file)
        file.flush()
        found: list[list[str]] = peers.run("with_detect_secrets", file.name, peer="detect-secrets")
        return found


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole
