"""Check that every module says first what it does, with a verb: not what it is, nor a question."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = [
    path
    for folder in ("fleetlore", "models", "sinks", "streams", "benchmarks", "examples")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path.stat().st_size
]
NO_VERBS = frozenset(
    [
        "a",
        "an",
        "the",
        "this",
        "that",
        "is",
        "are",
        "does",
        "what",
        "which",
        "who",
        "how",
        "why",
        "where",
        "when",
        "one",
        "several",
        "many",
        "our",
    ]
)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_says_first_what_it_does(path: Path) -> None:
    said = ast.get_docstring(ast.parse(path.read_text()))
    assert said, "no docstring"
    verb = said.split()[0].rstrip(",")
    assert verb.isalpha() and verb[0].isupper(), f"{verb!r} is no verb"  # `Topics:` and `fleetlore up` are none
    assert verb.lower() not in NO_VERBS and not verb.endswith("ing"), f"{verb!r} is no verb"
    assert not verb.endswith("s") or verb.endswith("ss"), f"{verb!r} describes: say Count, not Counts"
