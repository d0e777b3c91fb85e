"""Agents whose models LiteLLM calls, blocking and not, streamed and not, in the forms of two providers."""

import orjson
import pytest

from fleetlore.wire import events as names
from tests.fleetlore.join.model_doors import by_litellm, called_back
from tests.fleetlore.join.world import ERROR, RIGHT, WRONG, Scripted, World
from tests.fleetlore.relay.provider import Provider

# LiteLLM takes seconds to import. Its warnings are about its types, and connections that it leaves to the collector.
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]

WAYS = [(False, False), (False, True), (True, False), (True, True)]
# The other providers are called by the code of these two.
MODELS = {"openai/m": WAYS, "anthropic/claude-haiku-4-5": WAYS}
MODELS |= {each: WAYS[1:3] for each in ("hosted_vllm/m", "azure_ai/claude-haiku-4-5", "vertex_ai/claude-haiku-4-5")}


@pytest.mark.parametrize(
    ("model", "blocking", "streamed"), [(model, *way) for model, ways in MODELS.items() for way in ways]
)
async def test_the_second_agent_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch, model: str, blocking: bool, streamed: bool
) -> None:
    # The token is Google's, where an agent signs in.
    place = "litellm.llms.vertex_ai.vertex_llm_base.VertexBase._ensure_access_token"
    monkeypatch.setattr(place, lambda *args, **options: ("token", "project"))
    with called_back():
        for scripted in (Scripted(WRONG), Scripted()):
            provider = Provider(scripted.choose)
            await by_litellm(world, world.fleet(), provider, model, blocking=blocking, streamed=streamed)
            assert world.made == scripted.chosen
            for body in map(orjson.loads, provider.bodies) if "claude" in model else ():
                assert "system" not in [each["role"] for each in body["messages"]]
                assert "fleet-memory" in str(body["system"])
            if len(world.made) == 2:
                assert world.made == [WRONG, RIGHT]
                failed, worked = world.recorder.outcomes
                assert failed[names.ARGUMENTS] == {"index": WRONG} and ERROR in failed[names.ERROR_MESSAGE]
                assert worked[names.ARGUMENTS] == {"index": RIGHT} and names.ERROR_TYPE not in worked
                assert names.DURATION not in failed, "nobody said when it began"
                await world.learn()
    assert world.made == [RIGHT]
