"""Execute the call that a model with a policy adapter writes after a failure.

    python -m benchmarks.policy_calls LOG MODEL QUESTIONS "mariadb -u root" OUT

LOG is InterCode's SQL log and QUESTIONS its `ic_spider_dev.json`; the client reaches its `ic_spider_dbs.sql`, under
`lower_case_table_names=1`. A state is the chat up to the failed first call of a later session, one a task. No learned
pair, and no session behind the advice, is of these tasks. The trainer's gate judges the adapter by later pairs. OUT
keeps the answers: a run goes on where one stopped.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
import typer
from msgspec.structs import replace
from peft import PeftModel

from benchmarks.evaluate.figures import interval
from benchmarks.evaluate.fleet import Fleet
from benchmarks.evaluate.places import at_places
from benchmarks.evaluate.world import LoggedTask
from benchmarks.living.past import pinned
from benchmarks.living.world import Call
from benchmarks.runs import read_runs
from fleetlore.transcripts.session import LoggedSession
from fleetlore.wire.trajectory import Judgment, Trajectory
from models.calls.gate import GateReport
from models.judge import JudgeChain
from models.policy.gate import judge_policy, split
from models.policy.learn import LanguageModel
from models.policy.pairs import Pair, calling, chat, preference_pairs
from streams.offline.memory_pipeline import run_logs

ARMS = {"none": (), "weights": ("none",), "text": ("none",), "weights and text": ("none", "text")}
# Tokens of a learned pair and of a written call: longer ones take too long on a CPU.
_PAIR_TOKENS, _CALL_TOKENS = 260, 80
STATES, _BATCH = 80, 20
_QUORUM = 2
# Later pairs for the gate, evenly spaced.
_LATER = 30
# The log's server refuses columns that are not grouped by.
_STRICT = "SET sql_mode=CONCAT(@@sql_mode, ',ONLY_FULL_GROUP_BY'), max_statement_time=10; START TRANSACTION READ ONLY; "


class Log(NamedTuple):
    """Sessions as they were logged, in the order in which they are played, and as the first stage closes them."""

    logged: list[LoggedSession]
    trajectories: list[Trajectory]

    def pairs(self) -> list[Pair]:
        judge = JudgeChain()
        return preference_pairs(
            [Judgment(trajectory=each, verdict=judge.judge(each)) for each in self.trajectories], _QUORUM
        )


def log_of(data: Path) -> Log:
    """Return the sessions of a log at SQL tasks, in one drawn order."""
    logged = at_places([each for each in read_runs(data) if each.task.startswith("sql")])
    trajectories = asyncio.run(run_logs(logged, seed=0, learn=False)).trajectories
    by_session = {each.session: each for each in logged}
    return Log([by_session[each.session] for each in trajectories], trajectories)


def advice(fleet: Fleet, state: Trajectory) -> str:
    """Return the advice to a newcomer after the failed first call of a session."""
    call, task = state.calls[0], LoggedTask(state.task, state.goal, state.calls[0].tool, state.place)
    with fleet.session(task, f"asks/{state.id}", model=True) as session:
        with session.action(call.tool, call.arguments) as action:
            action.fail(call.error_type or "", call.error_message or "")
        return pinned(session.advise().text)


class Databases:
    """InterCode's databases and questions, behind a client's command."""

    def __init__(self, client: str, questions: Path) -> None:
        self._command = [*shlex.split(client), "--batch", "--skip-column-names", "--execute"]
        self._gold = {each["query"]: each["gold"] for each in json.loads(questions.read_text())}

    def run(self, place: str, query: str) -> tuple[str, list[str]]:
        """Return the error, or "", and the rows."""
        # Some of the logged agents write `execute[QUERY]`.
        query = re.sub(r"^execute\[(.*)\]$", r"\1", query, flags=re.DOTALL)
        asked = [*self._command, _STRICT + query, place]
        done = subprocess.run(asked, capture_output=True, text=True, errors="replace")
        return done.stderr.strip() if done.returncode else "", done.stdout.splitlines()

    def states(self, sessions: Iterable[Trajectory], known: Set[str]) -> list[Trajectory]:
        """Return one session of each new task whose first call fails here too: some of them, evenly spaced."""
        failed = (each for each in sessions if each.calls and each.calls[0].failed and each.task not in known)
        found: dict[str, Trajectory] = {}
        for each in failed:
            if each.task not in found and self.run(each.place, each.calls[0].arguments)[0]:
                found[each.task] = each
        return list(found.values())[:: max(1, len(found) // STATES)][:STATES]

    def row(self, arm: str, state: Trajectory, text: str) -> dict[str, Any]:
        """Execute a call. It is right if its rows are those of the question's own query, in any order."""
        failed, call = (Call("sql", each).folded for each in (state.calls[0].arguments, text))
        error, rows = self.run(state.place, text)
        right = not error and Counter(rows) == Counter(self.run(state.place, self._gold[state.goal])[1])
        row = {"arm": arm, "task": state.task, "failed": failed, "call": text, "error": error, "works": not error}
        return row | {"right": right, "same call": call == failed, "look-up": call.startswith(("show", "desc"))}


class Writer(LanguageModel):
    """A model that writes calls."""

    def learn_once(self, older: Sequence[Pair], later: Sequence[Pair], folder: Path) -> GateReport:
        """Learn the older pairs that fit, unless the folder has an adapter, run it, and ask the gate about it."""
        before, alone = self._perplexity(), self.margins(later)
        if not folder.exists():
            self.learn([each for each in older if sum(map(len, self._encoded(each))) < _PAIR_TOKENS])
            self._model.save_pretrained(folder)
        self.run_alone()
        self._model = PeftModel.from_pretrained(self._plain, folder).eval()
        report = judge_policy(later, alone, self.margins(later), None, (before, self._perplexity()))
        # Half the bytes of the weights take half the time for each word.
        self._model.to(torch.bfloat16)
        return report

    def _perplexity(self) -> float:
        """Compute as the trainer does. All else may use matrix units for bfloat16, which some processors have."""
        torch.set_float32_matmul_precision("highest")
        found = self.perplexity()
        torch.set_float32_matmul_precision("medium")
        return found

    def write(self, states: Sequence[Trajectory], read: Sequence[str], *, adapted: bool) -> list[str]:
        """Return the next call of each state. Its beginning is given, so that every answer is a call."""
        texts, mark, end = [], "@@", self._tokenizer.eos_token_id
        for state, text in zip(states, read, strict=True):
            prompt = chat(state, 1) + ([{"role": "user", "content": text}] if text else [])
            before = self._text(prompt, add_generation_prompt=True)
            whole = self._text([*prompt, calling(replace(state.calls[0], arguments=mark))])
            texts.append(before + whole.removeprefix(before).partition(mark)[0])
        self._tokenizer.padding_side = "left"
        asked = self._tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
        ends = [end, *(id for word, id in self._tokenizer.get_vocab().items() if '"}' in word)]
        how = {"do_sample": False, "repetition_penalty": 1.0, "max_new_tokens": _CALL_TOKENS, "pad_token_id": end}
        with torch.no_grad(), nullcontext() if adapted else self._model.disable_adapter():
            ids = self._model.generate(**asked, **how, eos_token_id=ends)[:, asked.input_ids.shape[1] :]
        found = (re.split(r'(?<!\\)"', each)[0] for each in self._tokenizer.batch_decode(ids, skip_special_tokens=True))
        return [each.replace('\\"', '"').replace("\\n", "\n") for each in found]


def figures(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Shares by arm, and minus its rivals."""
    found: dict[str, dict[str, float]] = {}
    by_arm = {arm: sorted((row for row in rows if row["arm"] == arm), key=lambda row: str(row["task"])) for arm in ARMS}
    for arm, name in product(ARMS, ("works", "right", "same call", "look-up")):
        tasks, values = [row["task"] for row in by_arm[arm]], [float(row[name]) for row in by_arm[arm]]
        found[f"{arm}: {name}"] = interval(tasks, values)
        for rival in ARMS[arm]:
            gained = [mine - float(row[name]) for mine, row in zip(values, by_arm[rival], strict=True)]
            found[f"{arm} minus {rival}: {name}"] = interval(tasks, gained)
    return found


def main(log: Path, model: Path, questions: Path, client: str, out: Path) -> None:
    """Measure one adapter."""
    torch.set_num_threads(1)
    logged, databases = log_of(log), Databases(client, questions)
    older, later = split(logged.pairs())
    learned, end = {pair.task for pair in older}, max(pair.ended for pair in older)
    asked = databases.states([each for each in logged.trajectories if each.ended > end], learned)
    writer = Writer(model)
    report = writer.learn_once(older, later[:: -(-len(later) // _LATER)], out / "adapter")
    typer.echo(json.dumps({"gate": report.reason, **report.figures}, indent=1))
    fleet, tasks, both = Fleet(lore=True), {each.task for each in asked}, zip(*logged, strict=True)
    asyncio.run(fleet.learn([past for past, each in both if each.ended <= end and each.task not in tasks]))
    path = out / "rows.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    for arm in ARMS:
        left = [each for each in asked if (arm, each.task) not in {(row["arm"], row["task"]) for row in rows}]
        for batch in (left[start : start + _BATCH] for start in range(0, len(left), _BATCH)):
            read = [advice(fleet, each) if "text" in arm else "" for each in batch]
            calls = writer.write(batch, read, adapted="weights" in arm)
            rows += [databases.row(arm, *each) for each in zip(batch, calls, strict=True)]
            path.write_text("".join(f"{json.dumps(each)}\n" for each in rows))
    typer.echo(json.dumps(figures(rows), indent=1))


if __name__ == "__main__":
    typer.run(main)
