"""Run every function that reads text of others over adversarial repetitions, and fit how its time grows.

A text is one atom, or two in turns, again and again: what a pattern may begin to match and then does not. Time is that
of this thread on the processor, so that a busy machine and other threads of the process change little.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from itertools import count, product
from math import log
from random import Random
from typing import Any, NamedTuple, TypeVar

import orjson

from benchmarks.cloudevents import to_cloudevent
from benchmarks.security.atoms import ATOMS
from benchmarks.security.identities import REGIONS
from fleetlore import Fleet
from fleetlore.advice import provenance
from fleetlore.advice.gate import clean as harmless
from fleetlore.calls.call import MadeCall, text_of
from fleetlore.calls.context import CallContext
from fleetlore.cli.shared import safe, safe_lines
from fleetlore.fingerprint import fingerprint, literals, names, normal_form
from fleetlore.fingerprint.loops import LoopDetector
from fleetlore.kafka.encode import encode, mask
from fleetlore.redact.personal import PersonalData
from fleetlore.redact.redact import may_hold_secret, redact, suspects
from fleetlore.redact.values import redact_value
from fleetlore.watch.safety import dangers
from fleetlore.wire.events import ARGUMENTS, CONTENT, ERROR_MESSAGE, GOAL, MAX_BYTES, RESULT, ROLE, TOOL, Event, Kind
from fleetlore.wire.trajectory import Judgment, Step, Trajectory, Verdict
from fleetlore.words import words
from models.distil.cases import is_verdict
from models.distil.distiller import distil
from models.judge import gave_up
from models.llm.questions import recording
from models.memory.identities import identities
from streams.stage.base import Effects, Record
from streams.stages.s1_sessions.open_session import OpenSession
from streams.stages.s1_sessions.parse import clean, read_events

Run = Callable[[str], object]
_T = TypeVar("_T")

#: One record stalls a worker, and one event an agent, no longer than this.
WORKER_SECONDS = 0.050
AGENT_SECONDS = 0.005
PERSONAL_SECONDS = 0.030  # a text of telephone numbers alone, with personal data masked
#: The exponent of time by length of the text: 1 is linear.
MAX_EXPONENT = 1.5
#: Every atom and pair is tried at the first two sizes, the few slowest at the other two.
SIZES = (2_048, 16_384, 131_072, 1_048_576)
_SLOWEST = 1
_QUICK_SECONDS = 0.002  # a shorter time says nothing of how it grows

_PERSONAL = PersonalData(REGIONS)


class Reader(NamedTuple):
    """A function that reads text of others.

    Attributes:
        run: reads one text.
        limit: seconds that one text of the last size may take. It is None if it runs once for many events.
    """

    name: str
    run: Run
    limit: float | None = None


def _sent(kind: Kind, data: dict[str, Any]) -> object:
    return mask([encode(Event(kind, "default", "agent", "s", 0, 0.0, data))])


def _outcome(text: str) -> object:
    return _sent("outcome", {TOOL: "bash", ARGUMENTS: {"command": text}, RESULT: text, ERROR_MESSAGE: text})


def _outcome_of_a_person(text: str) -> object:
    data = {TOOL: "crm", ARGUMENTS: {"note": text}, RESULT: text, ERROR_MESSAGE: text}
    return mask([encode(Event("outcome", "default", "agent", "s", 0, 0.0, data))], _PERSONAL)


def first_stage(text: str, count: int = 1) -> object:
    """Whatever client wrote it: the largest record of so many events that a worker reads, through the first stage."""
    share = text[: MAX_BYTES // (4 * count)]
    while len(value := orjson.dumps([_numbered(number, share) for number in range(count)])) > MAX_BYTES:
        share = share[: len(share) // 2]
    events = read_events(Record("fleetlore.default.events", 0, 0, None, value, {}), Effects())
    clean(events)
    session = OpenSession("default", "s", "agent", 0, 0)
    for each in events:
        session.add(each, 0.0)
    session.take_observations()
    return session.close()


def _numbered(number: int, text: str) -> dict[str, Any]:
    text = f"{number:x} {text}"
    data: dict[str, Any] = {TOOL: "bash", ARGUMENTS: {"command": text}, RESULT: text, ERROR_MESSAGE: text}
    return to_cloudevent(Event("outcome", "default", "agent", "s", number, 0.0, data))


def _lessons(text: str) -> object:
    """The lessons of a session that holds the text: the later stages read only the kept part."""
    kept = text[:2000]
    failure = fingerprint.failure_of("bash", kept, None, kept)
    steps = (
        Step(sequence=1, role="user", result=kept),
        Step(sequence=2, role="tool", tool="bash", arguments=kept, error_message=kept, error_type=failure.error_class,
             family=failure.family, pattern=failure.class_, exact=failure.exact),
        Step(sequence=3, role="tool", tool="bash", arguments=kept + " x", result=kept),
    )  # fmt: skip
    trajectory = Trajectory(
        tenant="default", session="s", agent="a", task="t", goal=kept, started=0.0, ended=1.0, ending="success",
        reward=1.0, steps=steps, events=5,
    )  # fmt: skip
    verdict = Verdict(label="success", probability=0.99, source="reward", version="1")
    judgment = Judgment(trajectory=trajectory, verdict=verdict)
    return distil(judgment), gave_up(trajectory.steps[-1]), recording(trajectory)


def _ledger(text: str) -> object:
    ledger = provenance.AdviceLedger()
    ledger.show("", ("item-12345678",), (), ["a line of advice that is long enough to be known again"])
    return ledger.redact_shown({"a": [text]})


def _call(text: str) -> object:
    context = CallContext(text)
    context.record(MadeCall("bash", text), text, "Error")
    failure = fingerprint.failure_of("bash", text, None, text)
    assert failure
    return MadeCall("bash", text_of(text)).names


# A session without a fleet: it sends nothing, and its advice comes from the session alone.
_FLEET = Fleet("agent", broker="nowhere:1", ready_seconds=0)


def _advice(text: str) -> object:
    with _FLEET.session("g", task="t") as session:
        return session.advise("bash", {"command": text})


def _step(text: str) -> object:
    with _FLEET.session(text, task="t") as session, session.action("bash", {"command": text}) as action:
        action.fail("Error", text)
    return session


def _advice_after_a_failure(text: str) -> object:
    with _FLEET.session("g", task="t") as session:
        with session.action("bash", {"command": "x"}) as action:
            action.fail("Error", text)
        return session.advise("bash"), session.brief(["bash"])


def _failure(text: str) -> object:
    failure = fingerprint.failure_of("bash", text, text[:128], text)
    names.failure_kind(failure.error_class, failure.template, text, text)
    return is_verdict("bash", text[:2000])


READERS = (
    Reader("an agent's outcome, encoded and masked", _outcome, AGENT_SECONDS),
    Reader("an agent's outcome, with personal data masked", _outcome_of_a_person, PERSONAL_SECONDS),
    Reader("an agent's message, encoded and masked",
           lambda text: _sent("message", {ROLE: "user", CONTENT: text}), AGENT_SECONDS),
    Reader("an agent's start, encoded and masked", lambda text: _sent("session.started", {GOAL: text}), AGENT_SECONDS),
    Reader("an agent's caution, shell", lambda text: dangers("bash", {"command": text}), AGENT_SECONDS),
    Reader("an agent's caution, a list", lambda text: dangers("bash", {"command": [text]}), AGENT_SECONDS),
    Reader("an agent's caution, SQL", lambda text: dangers("sql", {"query": "DROP " + text}), AGENT_SECONDS),
    Reader("an agent's caution, Python", lambda text: dangers("python", {"code": "os.system " + text}), AGENT_SECONDS),
    Reader("an agent's advice before a call", _advice, AGENT_SECONDS),
    Reader("an agent's step that fails", _step, AGENT_SECONDS),
    Reader("an agent's step that fails, and the advice after it", _advice_after_a_failure, AGENT_SECONDS),
    Reader("an agent's memory of advice", _ledger, AGENT_SECONDS),
    Reader("an agent's call, for the models", _call, AGENT_SECONDS),
    Reader("a failure, recognised", _failure, AGENT_SECONDS),
    Reader("loops", lambda text: list(map(LoopDetector().add, ["bash"] * 3, [text] * 3, [text] * 3)), AGENT_SECONDS),
    Reader("advice, written", lambda text: harmless(text), AGENT_SECONDS),
    Reader("a worker's record of one event, stage 1", first_stage, WORKER_SECONDS),
    Reader("a session, learned from", _lessons, WORKER_SECONDS),
    Reader("redact", redact),
    Reader("redact_value", lambda text: redact_value({"password": [text], text[:64]: text})),
    Reader("suspects", lambda text: suspects([text])),
    Reader("may_hold_secret", lambda text: may_hold_secret([orjson.dumps(text)])),
    Reader("redact_fenced", lambda text: provenance.redact_fenced(provenance.OPENING + text)),
    Reader("masked_text", literals.masked_text),
    Reader("masked_arguments", lambda text: literals.masked_arguments(text)),
    Reader("masked_tokens", literals.masked_tokens),
    Reader("names", literals.names),
    Reader("template", normal_form.template),
    Reader("argument_shape", fingerprint.argument_shape),
    Reader("words of a search", words),
    Reader("identities", lambda text: identities([text])),
    Reader("safe", lambda text: (safe(text), safe_lines(text))),
)  # fmt: skip


class Timed(NamedTuple):
    """How long one reader took over one atom: seconds of the processor at `size` characters, and the exponent by which
    they grew; 0 where it was too quick to say.
    """

    atom: str
    size: int
    seconds: float
    exponent: float


_number = count()


def text_of_atom(atom: str, size: int) -> str:
    """A text that no cache knows, also not of its first part. It begins with atoms, for patterns that match there."""
    text = (atom * (size // len(atom) + 1))[:size]
    return f"{text[:600]}{next(_number):x} {text[600:]}"


def survey(reader: Reader, pairs: int, seed: int = 0) -> list[Timed]:
    """The reader over every atom and so many pairs, and at 1 MB over the slowest and the one whose time grew most; the
    slowest first.

    Only the large sizes say how time grows: what is short is mostly what every call costs.
    """
    found = [_timed(reader, atom, *SIZES[:2]) for atom in (*ATOMS, *_pairs(pairs, seed))]
    by_time = sorted(found, key=lambda each: -each.seconds)
    by_growth = sorted(found, key=lambda each: -each.exponent)
    worst = dict.fromkeys([each.atom for each in (*by_time[:_SLOWEST], *by_growth[:_SLOWEST])])
    found = [each._replace(exponent=0.0) for each in found]
    found += [_timed(reader, atom, *SIZES[2:]) for atom in worst]
    return sorted(found, key=lambda each: -each.seconds)


def _timed(reader: Reader, atom: str, small: int, large: int) -> Timed:
    seconds = _least(reader, atom, large)
    if seconds < _QUICK_SECONDS:
        return Timed(atom, large, seconds, 0.0)
    before = max(_least(reader, atom, small), 1e-6)
    bent = before * (large / small) ** MAX_EXPONENT
    for _ in range(3):  # one long run may have met a full memory or a busy neighbour; what is not linear stays so
        if seconds > bent:
            seconds = min(seconds, _least(reader, atom, large))
    return Timed(atom, large, seconds, log(seconds / before) / log(large / small))


def _least(reader: Reader, atom: str, size: int) -> float:
    """The least of a few runs, each over another text, so that no cache answers. One run is enough without a limit."""
    least = float("inf")
    for _ in range(5):
        least = min(least, _seconds_of(reader.run, text_of_atom(atom, size)))
        if reader.limit is None or least < 0.8 * reader.limit or least > 0.2:
            break
    return least


def slowest_record(events: int, pairs: int, seed: int = 0) -> tuple[float, str]:
    """How long the first stage takes over the worst record of so many events, and the atom or pair of that record."""
    reader = Reader("", lambda text: first_stage(text, events), WORKER_SECONDS)
    return max((_least(reader, atom, MAX_BYTES), atom) for atom in (*ATOMS, *_pairs(pairs, seed)))


def _pairs(number: int, seed: int) -> list[str]:
    return Random(seed).sample([first + second for first, second in product(ATOMS, ATOMS)], number)


def beside(run: Callable[[_T], object], made: Callable[[], _T]) -> float:
    """The least seconds of a few runs, each over a newly made input, on the machine that the limits are for.

    Scans of a text, in turns with the runs, tell by how much this machine is slower now.
    """
    least = scan = float("inf")
    for _ in range(5):
        least = min(least, _seconds_of(run, made()))
        scan = min(scan, _seconds_of(_scan, _SCANNED))
    return least / max(1.0, scan / _SCAN_SECONDS)


_SCAN_SECONDS = 0.0049
_SCANNED = "a plain line of words, 17 of them: /srv/x.py and more " * 300
_FOUND = re.compile(r"[a-z]+\d|\S+: In |(?:\w+\.)+\w+:")


def _scan(text: str) -> None:
    _FOUND.sub(" ", text)
    _FOUND.findall(text)
    text.lower().split()


def _seconds_of(run: Callable[[_T], object], text: _T) -> float:
    began = time.thread_time()
    run(text)
    return time.thread_time() - began
