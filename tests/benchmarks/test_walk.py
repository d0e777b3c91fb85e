"""The walk of docs/explain/architecture.md: which files an event passes, and which of them are to be read."""

import ast
import re
import subprocess
import sys
from typing import Any

import orjson
import pytest

from benchmarks.walk import MOST_FILES, ROOT, WAY_IN, WAY_OUT
from fleetlore.errors import StackError
from streams.embedded.broker import broker_command

PAGE = ROOT / "docs/explain/architecture.md"
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef

Ways = dict[str, Any]


@pytest.fixture(scope="module")
def ways() -> Ways:
    """The ways, walked by a new process: a second session in this one would find everything in the caches."""
    try:
        broker_command(0)
    except StackError as error:
        pytest.skip(str(error))
    command = [sys.executable, "-m", "benchmarks.walk", "--json"]
    said: Ways = orjson.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, timeout=170).stdout)
    return said


@pytest.mark.parametrize(("way", "to_read"), [("way in", WAY_IN), ("way out", WAY_OUT)])
def test_the_files_to_read_are_entered_in_the_order_of_their_list(
    ways: Ways, way: str, to_read: tuple[str, ...]
) -> None:
    assert len(to_read) <= 7
    assert [file for file in ways[way]["files"] if file in to_read] == list(to_read)


@pytest.mark.parametrize("way", ["way in", "way out"])
def test_an_event_passes_few_files(ways: Ways, way: str) -> None:
    assert len(ways[way]["files"]) <= MOST_FILES[way]


def test_the_page_goes_through_the_same_files() -> None:
    page = PAGE.read_text()
    assert tuple(re.findall(r"^\d\. \*\*`(.+?)`\*\*", page, re.MULTILINE)) == (*WAY_IN, *WAY_OUT)


def defined_in(source: str) -> set[str]:
    """Names of functions and classes, and of a class's own methods as `Class.method`."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, FUNCTION | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, FUNCTION)}
    return found


def test_the_page_names_tests_and_functions_that_exist() -> None:
    page = PAGE.read_text()
    sources = {
        path: path.read_text()
        for room in ("fleetlore", "models", "sinks", "streams", "tests")
        for path in (ROOT / room).rglob("*.py")
    }
    defined = set(re.findall(r"(?:def|class) (\w+)", "\n".join(sources.values())))
    for name in re.findall(r"`([A-Za-z_.]+)`", page):
        if name.endswith((".py", ".md")):
            assert any(str(path).endswith(name) for path in sources), name
        elif name.startswith("test_") or ("." in name and name[0].isupper()):
            assert all(part in defined for part in name.split(".")), name


def test_what_upholds_an_invariant_stands_in_the_file_that_the_page_names() -> None:
    page = " ".join(PAGE.read_text().split())
    held = [
        (name, file)
        for names, file in re.findall(r"((?:`[\w.]+`(?:,| and)? )+)in `([\w/]+\.py)`", page)
        for name in re.findall(r"`([\w.]+)`", names)
    ]
    assert len(held) >= 25
    for name, file in held:
        assert name in defined_in((ROOT / file).read_text()), f"{name} does not stand in {file}"
