"""The client against a server that speaks the protocol, in its good hours and its bad ones."""

import asyncio
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from fleetlore.config import Settings
from fleetlore.errors import ConfigError
from fleetlore.testing import FakeClock
from models.llm.client import ANSWER_TOKENS, Answers, Client
from models.llm.questions import VERDICT
from tests.doubles.model_endpoint import ModelEndpoint, Reply

YES = {"verdict": "success"}
# The number of bytes that fit on a full disk.
DISK_BYTES = 200_000


@pytest.fixture
def endpoint() -> Iterator[ModelEndpoint]:
    with ModelEndpoint(lambda request: YES, key="sk-right") as running:
        yield running


class Seen:
    """The figures that the client observed."""

    def __init__(self) -> None:
        self.results: Counter[str] = Counter()
        self.tokens = 0

    def __call__(self, result: str, tokens: int) -> None:
        self.results[result] += 1
        self.tokens += tokens


@asynccontextmanager
async def client(
    endpoint: ModelEndpoint, seen: Seen | None = None, answers: Answers | None = None, clock: Any = None, **changes: Any
) -> AsyncIterator[Client]:
    values: dict[str, Any] = {"llm_url": endpoint.url, "llm_model": "m1", "llm_key": "sk-right", "llm_retries": 2}
    kept = answers or Answers(":memory:")
    made = Client(Settings(**(values | changes)), kept, "judge-1", VERDICT, seen or Seen(), clock)
    try:
        yield made
    finally:
        await made.close()
        if answers is None:
            kept.close()


async def asked(endpoint: ModelEndpoint, **changes: Any) -> tuple[Any, Counter[str]]:
    """The answer to one question, and what was observed of it."""
    seen = Seen()
    async with client(endpoint, seen, **changes) as asking:
        return await asking.ask("x"), seen.results


def scripted(*replies: Reply | dict[str, Any]) -> Callable[[dict[str, Any]], Any]:
    """Each reply once, the last one for ever."""
    left = list(replies)
    return lambda request: left.pop(0) if len(left) > 1 else left[0]


async def test_it_asks_in_the_form_of_the_protocol(endpoint: ModelEndpoint) -> None:
    seen = Seen()
    async with client(endpoint, seen) as asking:
        assert await asking.ask("a recording") == YES
    [request] = endpoint.requests
    assert [message["role"] for message in request["messages"]] == ["system", "user"]
    assert request["messages"][1]["content"] == "a recording"
    assert request["response_format"]["json_schema"]["schema"] == VERDICT
    assert (request["model"], request["temperature"], request["max_tokens"]) == ("m1", 0, ANSWER_TOKENS)
    assert seen.results == {"ok": 1}
    assert seen.tokens == sum(len(message["content"]) for message in request["messages"]) // 4 + 6


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_what_passes_is_tried_again(endpoint: ModelEndpoint, status: int) -> None:
    endpoint.model = scripted(Reply("busy", status, headers={"retry-after-ms": "10"}), YES)
    assert await asked(endpoint) == (YES, {"ok": 1}) and len(endpoint.requests) == 2


@pytest.mark.parametrize(
    ("reply", "result", "attempts"),
    [
        (Reply("busy", 429, headers={"retry-after-ms": "1"}), "failed", 3),
        (Reply("broken", 500, headers={"retry-after-ms": "1"}), "failed", 3),
        (Reply("no such model", 404), "refused", 1),
        (Reply("the context is too long", 400), "refused", 1),
        (Reply("", raw=b"<html>gateway</html>"), "failed", 1),
        (Reply("", raw=b'{"choices": [{"message": "success"}]}'), "malformed", 1),
        (Reply("", raw=b'{"choices": [], "usage": {"total_tokens": "9"}}'), "malformed", 1),
        (Reply("", raw=b"[]"), "malformed", 1),
        (Reply("I would say it went well."), "malformed", 1),
        (Reply('["success"]'), "malformed", 1),
        (Reply('{"verdict": '), "malformed", 1),
    ],
)
async def test_what_does_not_pass_is_no_answer(
    endpoint: ModelEndpoint, reply: Reply, result: str, attempts: int
) -> None:
    endpoint.model = scripted(reply)
    assert await asked(endpoint) == (None, {result: 1}) and len(endpoint.requests) == attempts


async def test_a_wrong_key_and_an_endpoint_that_is_away_or_slow_are_no_answer(
    endpoint: ModelEndpoint, unused_address: str
) -> None:
    assert await asked(endpoint, llm_key="sk-wrong") == (None, {"refused": 1})
    assert await asked(endpoint, llm_url=f"http://{unused_address}/v1", llm_retries=0) == (None, {"failed": 1})
    endpoint.model = scripted(Reply("{}", seconds=600.0))  # whoever waits for it has no time-out to report
    assert await asked(endpoint, llm_timeout_seconds=0.1, llm_retries=0) == (None, {"timeout": 1})


async def test_an_answer_in_a_code_fence_counts(endpoint: ModelEndpoint) -> None:
    endpoint.model = scripted(Reply('```json\n{"verdict": "success"}\n```'))
    assert await asked(endpoint) == (YES, {"ok": 1})


@pytest.mark.parametrize(
    ("forms", "used"), [(("text", "json_object"), "json_object"), (("text",), None)], ids=["objects", "text only"]
)
async def test_an_endpoint_without_schemas_is_asked_otherwise_and_that_is_remembered(
    endpoint: ModelEndpoint, forms: tuple[str, ...], used: str | None
) -> None:
    endpoint.forms = forms
    async with client(endpoint) as asking:
        assert await asking.ask("x") == YES
        tried = len(endpoint.requests)
        assert await asking.ask("y") == YES
    assert len(endpoint.requests) == tried + 1
    assert endpoint.requests[-1].get("response_format", {}).get("type") == used


async def test_a_model_that_wants_its_limit_under_another_name_gets_it(endpoint: ModelEndpoint) -> None:
    def picky(request: dict[str, Any]) -> Any:
        for name in ("max_tokens", "temperature"):
            if name in request:
                return Reply(f"Unsupported parameter: '{name}' is not supported with this model.", 400)
        return YES

    endpoint.model = picky
    assert await asked(endpoint) == (YES, {"ok": 1})
    assert endpoint.requests[-1]["max_completion_tokens"] == ANSWER_TOKENS
    assert "response_format" in endpoint.requests[-1]


async def test_nothing_is_asked_twice_even_after_a_restart(endpoint: ModelEndpoint, tmp_path: Path) -> None:
    seen = Seen()
    for _ in range(2):
        answers = Answers(tmp_path / "new" / "llm.sqlite3")
        async with client(endpoint, seen, answers) as asking:
            assert asking.known("y") is None
            assert await asking.ask("x") == asking.known("x") == YES
        async with client(endpoint, seen, answers, llm_model="m2") as other:
            assert await other.ask("x") == YES
        answers.close()
    assert [request["model"] for request in endpoint.requests] == ["m1", "m2"]
    assert seen.results == {"ok": 2, "cached": 2}


async def test_a_bad_answer_is_not_paid_for_twice(endpoint: ModelEndpoint) -> None:
    endpoint.model = scripted(Reply("no idea"))
    async with client(endpoint) as asking:
        assert [await asking.ask("x") for _ in range(2)] == [None, None]
    assert len(endpoint.requests) == 1


async def test_a_day_has_its_tokens_also_after_a_restart(endpoint: ModelEndpoint, tmp_path: Path) -> None:
    clock, seen, path = FakeClock(), Seen(), tmp_path / "llm.sqlite3"
    most = 4 * (1_000 + ANSWER_TOKENS)  # four questions, as they are reserved; far more than they use
    for begin in (0, 20):
        with closing(Answers(path)) as answers:
            async with client(endpoint, seen, answers, clock, llm_tokens_per_day=most) as asking:
                for n in range(begin, begin + 20):
                    await asking.ask(f"question {n}")
        assert 1 < seen.results["ok"] < 20 and seen.tokens <= most
    with closing(Answers(path)) as answers:
        async with client(endpoint, seen, answers, clock, llm_tokens_per_day=most) as asking:
            assert await asking.ask("one more") is None
            clock.advance(86_400)
            assert await asking.ask("one more") == YES


async def test_questions_that_are_asked_together_do_not_overdraw_the_budget(endpoint: ModelEndpoint) -> None:
    endpoint.model = scripted(Reply('{"verdict": "success"}', seconds=0.2, counted=False))
    seen = Seen()
    async with client(endpoint, seen, llm_tokens_per_day=8_000) as asking:
        await asyncio.gather(*(asking.ask(f"question {n}") for n in range(10)))
    assert seen.tokens <= 8_000
    assert seen.results["ok"] + seen.results["budget"] == 10 and seen.results["budget"] > 0


def test_a_url_without_a_model_and_a_file_that_is_none_are_refused(tmp_path: Path) -> None:
    with closing(Answers(":memory:")) as answers, pytest.raises(ConfigError, match="FLEETLORE_LLM_MODEL"):
        Client(Settings(llm_url="http://x/v1"), answers, "judge-1", VERDICT, Seen())
    (tmp_path / "notes.txt").write_text("these are no answers, and there is enough of it to see that\n" * 100)
    with pytest.raises(ConfigError, match=r"notes\.txt"):
        Answers(tmp_path / "notes.txt")


def test_a_full_disk_ends_nothing_and_is_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    unkept: list[None] = []
    answers = Answers(tmp_path / "llm.sqlite3", unkept=lambda: unkept.append(None))
    answers.put("before", "a")
    answers.spend(0.0, 10)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (DISK_BYTES, hard))
    try:
        for n in range(3):
            assert answers.put(f"k{n}", "x" * DISK_BYTES) == "x" * DISK_BYTES
            answers.spend(0.0, 5)
        assert answers.get("before") == "a" and answers.get("k0") is None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(unkept) == 3 and len(caplog.records) == 1, "said once"
    assert answers.spent(0.0) == 25, "what is spent counts all the same"
    answers.put("after", "b")
    assert answers.get("after") == "b"
    answers.close()


def test_old_answers_are_forgotten_first() -> None:
    answers = Answers(":memory:", most=10)
    for n in range(50):
        assert answers.put(f"k{n}", "a") == "a"
        assert answers.put(f"k{n}", "another") == "a"
    assert answers.get("k40") == answers.get("k49") == "a" and answers.get("k39") is None
    answers.close()


def test_without_the_package_it_says_which_extra_brings_it() -> None:
    code = (
        "import sys; sys.modules['openai'] = None\n"
        "from fleetlore.config import Settings\n"
        "from fleetlore.errors import ModelUnavailable\n"
        "from models.llm.questions import LanguageModel\n"
        "try:\n    LanguageModel(Settings(llm_url='http://x/v1', llm_model='m', llm_answers=':memory:'))\n"
        "except ModelUnavailable as error:\n    assert 'fleetlore-server[llm]' in str(error)\n"
        "else:\n    raise AssertionError\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
