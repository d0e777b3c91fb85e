"""The pages on joining: their example runs, and what it adds to an agent is few lines."""

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from tests.fleetlore.join.conftest import read_file
from tests.rows import for_each

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs/guide/join").glob("*.md"))
BLOCK = re.compile(r'^```python hl_lines="([\d ]+)"\n(.*?)^```', re.DOTALL | re.MULTILINE)
MOST_LINES = 5
FIGURES = (ROOT / "docs/results/joining.md").read_text()
TESTS = re.compile(r"`python -m pytest (\S+?)(?: -k (\w+))?`")


# Each imports its framework when it is called: the imports of all of them take seconds.
def langchain_model() -> Any:
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage

    class ChatModel(GenericFakeChatModel):
        def bind_tools(self, tools: Any, **options: Any) -> Any:
            return self

    return ChatModel(messages=iter([AIMessage("done")]))


def openai_agents_model() -> Any:
    from tests.fleetlore.join.test_openai_agents import Script

    return Script(("read_file", '{"path": "/srv/a"}'))


def pydantic_ai_model() -> Any:
    from pydantic_ai.models.test import TestModel

    return TestModel(call_tools=[])


MODELS: dict[str, Any] = {
    "langchain": langchain_model,
    "openai-agents": openai_agents_model,
    "pydantic-ai": pydantic_ai_model,
    "claude": lambda: None,
    "litellm": lambda: None,
    "model-clients": lambda: None,
}


async def answer(client: Any, options: Any, goal: str) -> None:
    assert client(options=options).options.hooks


async def agent(goal: str) -> None:
    import litellm

    from fleetlore.join.litellm import FleetCallback

    [callback] = litellm.callbacks
    assert isinstance(callback, FleetCallback)


async def run_agent(client: Any, goal: str) -> None:
    from openai import AsyncOpenAI

    assert isinstance(client, AsyncOpenAI) and type(client) is not AsyncOpenAI


def example(page: Path) -> tuple[list[int], str]:
    [(added, code)] = BLOCK.findall(page.read_text())
    return [int(line) for line in added.split()], code


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=[pytest.mark.long] if page.stem == "litellm" else [])
        for page in PAGES
        if page.stem in MODELS
    ],
)
async def test_the_example_runs(page: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETLORE_BROKER", address)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    names = {"model": MODELS[page.stem](), "read_file": read_file, "goal": "read it", "answer": answer}
    names |= {"run_agent": run_agent, "agent": agent}
    if page.stem == "litellm":
        monkeypatch.setattr("litellm.callbacks", [])
    code = compile(example(page)[1], page.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, names)
    if inspect.isawaitable(result):
        await result


@for_each("page", *[page for page in PAGES if BLOCK.search(page.read_text())])
def test_an_agent_adds_few_lines_and_is_whole_without_them(page: Path) -> None:
    added, code = example(page)
    assert len(added) <= MOST_LINES
    lines = code.splitlines()
    assert not re.search(r"[Ff]leet", "\n".join(line for at, line in enumerate(lines, 1) if at not in added))
    for at in added:
        line = lines[at - 1]
        indent = line[: len(line) - len(line.lstrip())]
        lines[at - 1] = f"{indent}if True:" if line.endswith(":") else ""
    compile("\n".join(lines), page.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_the_page_of_figures_counts_the_same_lines_and_names_tests_that_exist() -> None:
    lines = {page.stem: len(example(page)[0]) for page in PAGES if BLOCK.search(page.read_text())}
    assert lines.pop("otel") == 4 and set(lines.values()) == {5}
    assert "LangChain, OpenAI Agents, pydantic-ai, Claude, `wrap_openai`, LiteLLM: 5; OpenTelemetry: 4" in FIGURES
    named = TESTS.findall(FIGURES)
    assert len(named) >= 5
    for path, word in named:
        assert re.search(rf"def test_\w*{word}", (ROOT / path).read_text()), f"{path} -k {word}"
