"""All lore passes one gate on its way to a model's context."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Modules that write text of other agents for a person, without the gate.
FOR_PERSONS = {"all_of"}


@cache
def modules() -> dict[str, ast.Module]:
    """The modules that name what the tests look for."""
    texts = {path.relative_to(ROOT).as_posix(): path.read_text() for path in (ROOT / "fleetlore").rglob("*.py")}
    named = re.compile("|".join(("Tip", "_replace", *FOR_PERSONS)))
    return {path: ast.parse(text) for path, text in texts.items() if named.search(text)}


def test_only_the_gate_makes_the_text_of_a_tip() -> None:
    makers = {
        file
        for file, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and (name := node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", ""))
        and name in ("Tip", "_replace")
        and any(keyword.arg == "text" for keyword in node.keywords)
    }
    # The watchdog and the safety rules speak in words of ours alone.
    assert makers == {"fleetlore/advice/gate.py", "fleetlore/watch/watchdog.py", "fleetlore/watch/safety.py"}


def test_what_is_written_for_persons_is_read_by_commands_alone() -> None:
    readers = {
        file
        for file, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and FOR_PERSONS & {alias.name for alias in node.names}
    }
    # The functions behind `fleetlore tools`, `fleetlore hints` and the relay's list of lore.
    readers -= {"fleetlore/advice/sources.py", "fleetlore/advice/decide.py"}
    assert all(file.startswith("fleetlore/cli/") for file in readers), readers
