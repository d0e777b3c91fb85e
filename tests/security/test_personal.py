"""On request, personal data with a recognisable form is masked before an event leaves the agent."""

import subprocess
import sys
from random import Random
from typing import Any

import orjson
import pytest

from benchmarks.embedded_broker import EmbeddedBroker
from benchmarks.security import corpora
from benchmarks.security.identities import HARMLESS, REGIONS, personal
from fleetlore import Fleet
from fleetlore.config import Settings
from fleetlore.errors import ConfigError
from fleetlore.fingerprint.fingerprint import failure_of
from fleetlore.kafka.encode import encode, mask
from fleetlore.kafka.read import read_to_end
from fleetlore.redact.personal import ANYWHERE, PersonalData
from fleetlore.wire.events import ARGUMENTS, CONTENT, RESULT, TOOL, Event
from fleetlore.wire.topics import topic
from tests.rows import for_each

MASKS = PersonalData(REGIONS)


def test_what_has_a_form_is_masked() -> None:
    planted = list(personal(Random(5), 4))
    missed = [each for each in planted if each.secret in MASKS.masked_text(each.text)]
    assert len(missed) <= 0.02 * len(planted), missed[:5]
    # The first look at an event's bytes opens those that hold one.
    assert len([each for each in planted if _masked({CONTENT: each.text})[CONTENT] == each.text]) == len(missed)


def test_what_only_looks_like_it_stays_whole() -> None:
    texts = [*corpora.harmless(Random(6), 200), "2024-05-20 12:00:01", "x[::2]", "4111 1111 1111 1112", "415-555-267"]
    changed = [text for text in texts if MASKS.masked_text(text) != text]
    assert len(changed) <= 0.001 * len(texts), changed[:5]


def test_versions_and_numbers_of_orders_stay_whole() -> None:
    changed = [text for text in HARMLESS if MASKS.masked_text(text) != text]
    assert len(HARMLESS) == 48 and len(changed) <= 2, changed


@for_each("around", "电话{}号", "тел{}да", "번호{}입니다", "邮箱：{}，请")
def test_letters_of_another_script_may_stand_around_it(around: str) -> None:
    data = "anna.berg@example.com", "+49 151 23456789", "4111 1111 1111 1111", "DE89370400440532013000", "123-45-6789"
    assert [each for each in data if each in MASKS.masked_text(around.format(each))] == []


def test_a_number_under_the_key_of_a_phone_is_one() -> None:
    assert _masked({ARGUMENTS: {"phone": "4155552671", "home_phone": 4155552671, "order": "4155552671"}}) == {
        ARGUMENTS: {"phone": "[redacted:phone]", "home_phone": "[redacted:phone]", "order": "4155552671"}
    }


def test_names_numbers_and_members_are_masked_too() -> None:
    data = {ARGUMENTS: {"jane@example.com": [4111111111111111, 41, 4.5, None, True]}, RESULT: ["call +49 30 901820"]}
    assert _masked(data) == {
        ARGUMENTS: {"[redacted:email]": ["[redacted:card]", 41, 4.5, None, True]},
        RESULT: ["call [redacted:phone]"],
    }


def test_a_local_number_is_one_of_its_region() -> None:
    text = "call (415) 555-2671"
    assert PersonalData(["US"]).masked_text(text) == "call [redacted:phone]"
    assert PersonalData([ANYWHERE]).masked_text(text) == text


def test_a_long_list_of_numbers_is_masked_unchecked() -> None:
    text = " ".join(f"+49 30 9018{number:02}" for number in range(100))
    assert "9018" not in MASKS.masked_text(text)


async def test_an_agent_sends_no_identity(
    broker: EmbeddedBroker, tenant: str, make_topics: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETLORE_MASK_PERSONAL", "US,DE")
    await make_topics(broker.address, tenant, "events", "items", "patterns", "decisions", partitions=1)
    said = "no account for jane@example.com"
    async with Fleet("agent", broker=broker.address, tenant=tenant, ready_seconds=0) as fleet:
        async with fleet.session("refund jane@example.com", "jane@example.com") as session:
            session.message("user", "I am jane@example.com, (415) 555-2671, card 4111 1111 1111 1111")
            with session.action("crm", {"email": "jane@example.com"}) as action:
                action.fail("NotFound", said)
        # The agent knows its own failure by the name that workers give it.
        masked = failure_of("crm", {"email": "[redacted:email]"}, "NotFound", "no account for [redacted:email]")
        assert masked.exact in session._history.failures
        assert await fleet.flush(120)
        assert fleet.emitter.masked["email"] == 4  # that of the error was masked where the failure was named
    text = await _written(broker.address, topic(tenant, "events"))
    for identity in ("jane@example.com", "555-2671", "4111 1111"):
        assert identity not in text
    assert text.count("[redacted:email]") == 5


def test_a_region_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"regions as US or DE, or 'anywhere', not \['Texas'\]"):
        Fleet("agent", broker="nowhere:1", mask_personal=("US", "Texas"))


def test_without_the_extra_it_says_which_one_is_needed() -> None:
    code = (
        "import sys; sys.modules['phonenumbers'] = None\n"
        "from fleetlore import Fleet\n"
        "Fleet('agent', broker='nowhere:1')\n"
        "Fleet('agent', broker='nowhere:1', mask_personal=('anywhere',))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert "to find personal data needs phonenumbers: pip install 'fleetlore[personal]'" in done.stderr


def test_it_is_off_by_default() -> None:
    assert Settings().mask_personal == ()
    event = Event("outcome", "default", "agent", "s", 0, 0.0, {TOOL: "t", RESULT: "jane@example.com"})
    assert b"jane@example.com" in mask([encode(event)])[0][-1]


async def _written(address: str, name: str) -> str:
    """The bytes on the topic."""
    return b"".join([record.value for record in await read_to_end(address, [name], 120)]).decode()


def _masked(data: dict[str, Any]) -> Any:
    (event,) = mask([encode(Event("outcome", "default", "agent", "s", 0, 0.0, data))], MASKS)
    return orjson.loads(event[-1])
