"""An erasure finds all that a session left, and nothing that belongs to others under the same id."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from benchmarks.cloudevents import encode_record
from fleetlore.config import Settings
from fleetlore.recall.search import row_id
from fleetlore.wire.events import BATCH_HEADERS, OUTCOME, Event
from fleetlore.wire.principals import review_key, session_key
from fleetlore.wire.stats import stable_hash
from streams.offline.erase_search import Found, Wanted, find
from streams.stage.operators import Erasure
from tests.streams.log_pipeline import BASE_TIME, LogPipeline

FAILED = ("deploy", {"mode": "fast"}, "", "unknown mode 'fast'")
WORKED = ("deploy", {"mode": "quick"}, "done", None)
REVIEW = stable_hash(review_key("same"))


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> LogPipeline:
    pipeline = LogPipeline()

    async def records_of(_: Any, name: str) -> AsyncIterator[Any]:
        for record in pipeline.log.read_all(name):
            yield record

    monkeypatch.setattr("streams.offline.erase_search.records_of", records_of)
    return pipeline


async def found(pipeline: LogPipeline, **scope: str) -> Found:
    return await find(Settings(), pipeline.store, Wanted(tenant=pipeline.tenant, **scope))


def rows(pipeline: LogPipeline, *ids: str) -> set[str]:
    return {row_id(pipeline.tenant, id) for id in ids}


@pytest.mark.parametrize("judged", [True, False])
async def test_feedback_on_an_id_stays_while_another_principal_has_a_session_of_it(
    pipeline: LogPipeline, judged: bool
) -> None:
    """Whoever takes the ids of others and is erased takes no verdict from them."""
    outcome = "success" if judged else None
    await pipeline.send(pipeline.story.session("same", WORKED, agent="good", outcome=outcome))
    await pipeline.send(pipeline.story.session("same", FAILED, agent="evil"))
    await pipeline.take([pipeline.story.feedback("same", "failure")])
    erased = await found(pipeline, agent="evil")
    assert set(erased.rows) == rows(pipeline, session_key("evil", "same"))
    assert stable_hash(session_key("evil", "same")) in erased.hashes and REVIEW not in erased.hashes
    for hashes in erased.by_session:
        pipeline.operators.erased.take(pipeline.tenant, Erasure(time=1.0, sessions=hashes).to_json())
    await pipeline.send(pipeline.story.session("same", WORKED, agent="good"))
    await pipeline.take([pipeline.story.feedback("same", "success", 1, BASE_TIME + 200)])
    labels = [(row["session"], row["label"]) for row in await pipeline.bodies("judgments")]
    assert ("same", "success") in labels, "a correction after the erasure counts"
    both = await found(pipeline, session="same")
    keys = session_key("good", "same"), session_key("evil", "same"), review_key("same")
    assert set(both.rows) == rows(pipeline, *keys) and REVIEW in both.hashes


async def test_feedback_goes_with_the_only_session_of_its_id(pipeline: LogPipeline) -> None:
    await pipeline.send(pipeline.story.session("same", FAILED, agent="evil"))
    await pipeline.take([pipeline.story.feedback("same", "failure")])
    erased = await found(pipeline, agent="evil")
    assert set(erased.rows) == rows(pipeline, session_key("evil", "same"), review_key("same"))
    assert REVIEW in erased.hashes and {"feedback", "events", "judgments"} <= set(erased.topics)


@pytest.mark.parametrize("agent", ["good", "evil"])
async def test_a_claim_belongs_to_the_agent_that_made_it(pipeline: LogPipeline, agent: str) -> None:
    """It waits in a row of its own for a session that has not come."""
    claim = Event("feedback", pipeline.tenant, "evil", "same", 7, BASE_TIME, {OUTCOME: "failure"})
    await pipeline.send_raw(encode_record([claim]), headers=BATCH_HEADERS)
    await pipeline.take(pipeline.story.session("same", WORKED, agent="good"))
    erased = await found(pipeline, agent=agent)
    assert set(erased.rows) == rows(pipeline, session_key(agent, "same"))


async def test_a_correction_wakes_no_session_that_is_being_erased(pipeline: LogPipeline) -> None:
    await pipeline.take(pipeline.story.session("same", WORKED, agent="evil"))
    before = pipeline.log.read_all(f"fleetlore.{pipeline.tenant}.judgments")
    pipeline.operators.erased.add_sessions(pipeline.tenant, [stable_hash(session_key("evil", "same"))])
    await pipeline.take([pipeline.story.feedback("same", "failure")])
    assert pipeline.log.read_all(f"fleetlore.{pipeline.tenant}.judgments") == before
