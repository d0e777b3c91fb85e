"""Read tasks of pandas and numpy from `tasks.toml`, each solved by a line of Python that runs for real.

The line runs in a separate process, with a time limit, in an environment with these packages only.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from benchmarks.living.llm.model import Message
from benchmarks.living.world import Call, Ran, Task
from benchmarks.venvs import python_with

REQUIREMENTS = ("pandas==3.1.1", "numpy==2.4.6")
SCRIPT = Path(__file__).with_name("run_code.py")
TASKS = Path(__file__).with_name("tasks.toml")
PLACE = "python with pandas 3 and numpy 2"
SECONDS = 30.0
SHOWN = 400
_LOOK_UP = re.compile(r"\b(dir|help|vars)\(|__version__|__doc__")


@dataclass(frozen=True, slots=True)
class CodeTask(Task):
    """A task with what is run `before` and its `check`."""

    before: str
    check: str


class ToolsWorld:
    """See the module.

    Args:
        python: an interpreter that has pandas and numpy; None makes an environment for it.
    """

    system = """You solve small tasks with pandas (pd) and numpy (np), which are imported. You have two tools. \
Reply with one line: a tool, a colon, and Python code on that line, statements separated by semicolons.
python: CODE    runs the code and shows the variable answer, or the error
submit: CODE    hands in the code that assigns the right result to the variable answer; if it runs, the task is over
You have few calls, the submit included. Never repeat a call that failed."""
    example: Sequence[Message] = (
        ("user", "Variables: s = pd.Series([2, 1])\nTask: Sort the values of s."),
        ("assistant", "python: answer = s.sort()"),
        ("user", "Error: AttributeError: 'Series' object has no attribute 'sort'"),
        ("assistant", "submit: answer = s.sort_values()"),
        ("user", "Accepted."),
    )
    grammar = 'root ::= ("python: " | "submit: ") [A-Za-z] [^\\n]{3,400}\n'
    tools = ("python", "submit")
    argument = "code"
    first_look: Call | None = None

    def __init__(self, python: Path | None = None) -> None:
        self._given = python
        groups = tomllib.loads(TASKS.read_text())["group"]
        self._docs = "What this version needs:\n" + "\n".join(f"- {each['docs']}" for each in groups)
        self.tasks: Sequence[Task] = [
            CodeTask(f"{group['name']}-{number}", PLACE, group["name"], goal, asked, group["before"], check)
            for group in groups
            for number, (goal, check) in enumerate(group["tasks"])
            for asked in [f"Variables:\n{group['before'].strip()}\nTask: {goal}"]
        ]

    @cached_property
    def _python(self) -> Path:
        return self._given or python_with(*REQUIREMENTS)

    def run(self, task: Task, call: Call) -> Ran:
        assert isinstance(task, CodeTask)
        ran = _ran(self._python, task.before, call.text, task.check)
        if call.tool == "submit" and not ran.error:
            return Ran("Accepted.", solved=ran.solved)
        return ran._replace(solved=False)

    def is_look_up(self, call: Call) -> bool:
        return _LOOK_UP.search(call.text) is not None

    def in_full(self, task: Task) -> str:
        return self._docs


@lru_cache(maxsize=4096)  # the same lines are tried in every arm
def _ran(python: Path, before: str, code: str, check: str) -> Ran:
    """The result of a line, `solved` if the check holds."""
    asked = json.dumps({"before": before, "code": code, "check": check})
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [str(python), "-I", str(SCRIPT)],
                input=asked,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                cwd=folder,
            )
        except subprocess.TimeoutExpired:
            return Ran("TimeoutError: the code ran too long", "TimeoutError")
    if done.returncode:
        return Ran("SystemExit: the code ended the interpreter", "SystemExit")
    found = json.loads(done.stdout.splitlines()[-1])
    said = found["said"] if len(found["said"]) <= SHOWN else f"{found['said'][:SHOWN]} … (cut)"
    return Ran(said, found["error"], found["solved"])
