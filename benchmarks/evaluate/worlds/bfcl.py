"""Wrap the stateful tool APIs and multi-turn tasks of the Berkeley Function-Calling Leaderboard (package `bfcl-eval`,
Apache-2.0).

Others wrote the tools, their errors, the tasks and the gold plans; this adapter only proposes calls. A session is one
task: the turns of the user are its aims, its gold plan the way that is known to work. The checker is the benchmark's
own idea: at the end every API must be in the state in which the gold plan leaves it, and every gold call must have been
made and answered.

What an agent can think of at a place: the next gold call; the same tool with arguments that other tasks gave it; the
gold calls after the next (to skip what the user did not say: brakes before the engine, a login before an order); other
tools of the same APIs with arguments from other tasks. It is the likelier to want a call, the more of its argument
values the user's turn names: reading is what language models can do without a memory. A call that works in another way
than gold did changes the state for good.

Only the wheel's API classes and data are needed, none of its requirements:

    pip install --no-deps bfcl-eval==2026.3.23
"""

from __future__ import annotations

import ast
import contextlib
import copy
import importlib
import io
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from random import Random
from typing import Any

from benchmarks.evaluate.worlds.world import Call, Proposal, Reply, Task
from fleetlore.errors import ModelUnavailable

PACKAGE = "bfcl_eval"
HOW = "the world bfcl needs: pip install --no-deps bfcl-eval==2026.3.23"
CATEGORY = "BFCL_v4_multi_turn_base.json"
# MathAPI is left out: it needs another package, and a calculator has no state. Its tasks are, too.
MODULES = {
    "GorillaFileSystem": "gorilla_file_system",
    "MessageAPI": "message_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "TwitterAPI": "posting_api",
    "VehicleControlAPI": "vehicle_control",
}

NEW_PART = "GorillaFileSystem"
PROPOSED = 8
READS = 20.0
SLACK = 3.0
MAX_RESULT = 300


@dataclass(frozen=True, slots=True)
class Entry:
    """One task of the benchmark: user turns with the gold calls of each."""

    id: str
    turns: tuple[str, ...]
    gold: tuple[tuple[int, Call], ...]
    classes: tuple[str, ...]
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tools:
    """What is known of the APIs: whose each tool is, and the arguments that tasks gave it."""

    owner: Mapping[str, str]
    used: Mapping[str, tuple[Call, ...]]


class BfclSession:
    """One task. See the module."""

    def __init__(self, entry: Entry, tools: Tools, seed: str) -> None:
        self._entry = entry
        self._tools = tools
        self._seed = f"{entry.id}/{seed}"
        self._apis = _open(entry)
        self._left = [call for _, call in entry.gold]
        self.calls = 0
        self.goal = entry.turns[0][:400]
        self.shortest = len(entry.gold)
        self.budget = int(SLACK * self.shortest)

    @property
    def aim(self) -> str:
        turn, _ = self._entry.gold[min(self.progress, self.shortest - 1)]
        return self._entry.turns[turn]

    @property
    def progress(self) -> int:
        return self.shortest - len(self._left)

    @property
    def done(self) -> bool:
        return not self._left or self.calls >= self.budget

    @property
    def succeeded(self) -> bool:
        return not self._left and _state(self._apis) == _final_state(self._entry.id)

    def proposals(self) -> Sequence[Proposal]:
        rng = Random(f"{self._seed}/{self.progress}")
        wanted = self._left[0]
        others = [call for call in self._tools.used[wanted.tool] if call.key != wanted.key]
        calls = [wanted, *self._left[1:3], *rng.sample(others, min(2, len(others)))]
        mine = sorted(tool for tool, owner in self._tools.owner.items() if owner in self._entry.classes)
        while len({call.key for call in calls}) < PROPOSED:
            calls.append(rng.choice(self._tools.used[rng.choice(mine)]))
        unique = list({call.key: call for call in calls}.values())
        rng.shuffle(unique)
        aim = self.aim.casefold()
        return [Proposal(call, READS ** _named(call, aim)) for call in unique]

    def perform(self, call: Call) -> Reply:
        if self.done:
            raise RuntimeError("the session is done: no call can be performed")
        self.calls += 1
        answer = _perform(self._apis[self._tools.owner[call.tool]], call)
        if not answer.failed:
            made = next((place for place, each in enumerate(self._left[:3]) if each.key == call.key), None)
            if made is not None:
                del self._left[made]
        return answer

    def solve(self) -> Call:
        return self._left[0]


class BfclWorld:
    """Tasks of the benchmark, drawn by a seed. Raises ModelUnavailable where the package is not installed."""

    name = "bfcl"
    epochs = 1

    def __init__(self, seed: int, *, tasks: int = 60, classes: Sequence[str] | None = None) -> None:
        self._seed = seed
        self._entries, self._tools = load()
        wanted = set(MODULES if classes is None else classes)
        mine = [entry for entry in self._entries.values() if wanted.issuperset(entry.classes)]
        chosen = Random(f"bfcl/{seed}").sample(mine, min(tasks, len(mine)))
        self.tasks = [Task(entry.id, "+".join(entry.classes)) for entry in chosen]

    def open(self, task: Task, seed: str, epoch: int) -> BfclSession:
        return BfclSession(self._entries[task.id], self._tools, seed)

    def parts(self) -> tuple[BfclWorld, BfclWorld]:
        """Everything but the file system, and the file system."""
        rest = sorted(set(MODULES) - {NEW_PART})
        return BfclWorld(self._seed, classes=rest), BfclWorld(self._seed, classes=[NEW_PART])


@lru_cache(maxsize=1)
def load() -> tuple[dict[str, Entry], Tools]:
    """All tasks whose APIs can be opened, and the tools. Raises ModelUnavailable where the package is not installed."""
    try:
        data = resources.files(PACKAGE) / "data"
        rows = _lines((data / CATEGORY).read_text())
        gold = {row["id"]: row["ground_truth"] for row in _lines((data / "possible_answer" / CATEGORY).read_text())}
        _api("TradingBot")
    except (ModuleNotFoundError, FileNotFoundError) as error:
        raise ModelUnavailable(HOW) from error
    owner = {
        name: cls
        for cls in sorted(MODULES)
        for name in dir(_api(cls))
        if not name.startswith("_") and callable(getattr(_api(cls), name))
    }
    entries: dict[str, Entry] = {}
    used: dict[str, dict[str, Call]] = defaultdict(dict)
    for row in rows:
        if not set(row["involved_classes"]) <= MODULES.keys():
            continue
        calls = []
        for turn, texts in enumerate(gold[row["id"]]):
            calls += [(turn, _parsed(text, owner)) for text in texts]
        turns = tuple(" ".join(message["content"] for message in turn) for turn in row["question"])
        entries[row["id"]] = Entry(
            row["id"], turns, tuple(calls), tuple(row["involved_classes"]), row["initial_config"]
        )
        for _, call in calls:
            used[call.tool][call.key] = call
    known = {tool: tuple(calls[key] for key in sorted(calls)) for tool, calls in sorted(used.items())}
    return entries, Tools({tool: owner[tool] for tool in known}, known)


def _lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def _api(name: str) -> Any:
    module = importlib.import_module(f"{PACKAGE}.eval_checker.multi_turn_eval.func_source_code.{MODULES[name]}")
    return getattr(module, name)


def _open(entry: Entry) -> dict[str, Any]:
    apis = {}
    for name in entry.classes:
        api = _api(name)()
        api._load_scenario(copy.deepcopy(dict(entry.config.get(name, {}))))
        apis[name] = api
    return apis


def _parsed(text: str, owner: Mapping[str, str]) -> Call:
    """A gold call, which is written as Python; positional arguments get their names."""
    node = ast.parse(text, mode="eval").body
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError(f"no call: {text!r}")
    tool = node.func.id
    names = _parameters(owner[tool], tool)
    arguments = {name: ast.literal_eval(value) for name, value in zip(names, node.args, strict=False)}
    arguments |= {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords if keyword.arg is not None}
    return Call(tool, arguments)


def _parameters(cls: str, tool: str) -> list[str]:
    code = getattr(_api(cls), tool).__code__
    return list(code.co_varnames[1 : code.co_argcount])


def _perform(api: Any, call: Call) -> Reply:
    """What the API answers. Errors are answers with an `error` in them, or exceptions."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            answer = getattr(api, call.tool)(**copy.deepcopy(call.arguments))
    except Exception as error:  # the benchmark's APIs raise whatever Python raises
        return Reply("", type(error).__name__, str(error)[:MAX_RESULT], f"{call.tool}:{type(error).__name__}")
    text = json.dumps(answer, default=str)[:MAX_RESULT]
    if isinstance(answer, dict) and answer.get("error"):
        message = str(answer["error"])[:MAX_RESULT]
        return Reply("", "ToolError", message, f"{call.tool}:{re.sub(r'[^a-zA-Z ]+', '', message)[:60]}")
    return Reply(text)


def _state(apis: Mapping[str, Any]) -> dict[str, Any]:
    """What the benchmark compares: public attributes. Rendered, because some of them are objects without an order."""
    return {
        name: {key: repr(value) for key, value in sorted(vars(api).items()) if not key.startswith("_")}
        for name, api in apis.items()
    }


@lru_cache(maxsize=512)
def _final_state(id: str) -> dict[str, Any]:
    entry = load()[0][id]
    apis = _open(entry)
    owner = load()[1].owner
    for _, call in entry.gold:
        _perform(apis[owner[call.tool]], call)
    return _state(apis)


def _named(call: Call, aim: str) -> float:
    """Share of a call's argument values that the user's words name; half where there is no argument."""
    values = [str(value).casefold() for value in call.arguments.values()]
    return sum(value in aim for value in values) / len(values) if values else 0.5
