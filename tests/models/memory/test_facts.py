from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.errors import ConfigError
from fleetlore.wire.lore import MemoryItem
from models.memory.candidate import is_item
from models.memory.facts import MAX_CONTENT, _markdown, read_facts


def facts(tmp_path: Path, name: str, text: str, **options: str) -> list[MemoryItem]:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return read_facts(path, "default", **options)


def test_markdown_is_cut_along_its_headings(tmp_path: Path) -> None:
    text = """Before any heading.

# Deploy

## Flags

Use `--now`.

Never `--fast`.

```
# not a heading
deploy --now
```

### Windows ##
Only at night.

# Undo
Roll back.
"""
    found = facts(tmp_path, "tools.md", text, tool="deploy")
    assert [(fact.title, fact.content.splitlines()[0]) for fact in found] == [
        ("tools.md", "Before any heading."),
        ("Deploy › Flags", "Use `--now`."),
        ("Deploy › Flags › Windows", "Only at night."),
        ("Undo", "Roll back."),
    ]
    assert found[1].content == "Use `--now`.\n\nNever `--fast`.\n\n```\n# not a heading\ndeploy --now\n```"
    assert {(fact.kind, fact.tool, fact.source, fact.when) for fact in found} == {
        ("fact", "deploy", "tools.md", "before a call of deploy")
    }


def test_text_is_cut_along_its_paragraphs(tmp_path: Path) -> None:
    words = [f"word{number}" for number in range(400)]
    found = facts(tmp_path, "notes.txt", f"One.\n\nTwo.\n\n{' '.join(words)}")
    assert found[0].content == "One.\n\nTwo."
    assert all(len(fact.content) <= MAX_CONTENT for fact in found)
    assert " ".join(fact.content for fact in found[1:]).split() == words


def test_jsonl_has_a_fact_a_line(tmp_path: Path) -> None:
    text = '{"content": "Quota is 60 a minute.", "tool": "orders", "when": "many calls"}\n\n{"content": "a\\nb"}\n'
    first, second = facts(tmp_path, "facts.jsonl", text, tool="any")
    assert (first.tool, first.when, first.title) == ("orders", "many calls", "Quota is 60 a minute.")
    assert (second.tool, second.title, second.content) == ("any", "a", "a\nb")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "line 2"),
        ("[]", "a fact is an object"),
        ('{"content": " "}', "a fact is an object"),
        ('{"content": "x", "tool": 3}', "tool must be a text"),
        ('{"content": "' + "x" * 801 + '"}', "at most 800"),
    ],
)
def test_what_is_no_fact_is_said_with_its_line(tmp_path: Path, line: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        facts(tmp_path, "facts.jsonl", '{"content": "fine"}\n' + line)


def test_a_document_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_facts(tmp_path / "missing.md", "default")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    with pytest.raises(ConfigError, match="UTF-8"):
        read_facts(tmp_path / "latin.txt", "default")


def test_ids_follow_from_what_is_said(tmp_path: Path) -> None:
    [one] = facts(tmp_path, "a.txt", "Ports below 1024 need root.")
    [same] = facts(tmp_path, "a.txt", "\nPorts below 1024 need root.\n\n")
    [edited] = facts(tmp_path, "a.txt", "Ports below 1025 need root.")
    [elsewhere] = facts(tmp_path, "b.txt", "Ports below 1024 need root.")
    assert one == same
    assert len({one.id, edited.id, elsewhere.id}) == 3
    # No outcome is ever counted for it, nor is it taken for an item that learns.
    assert not is_item(one.id) and len(one.id) == 32


def test_secrets_do_not_become_facts(tmp_path: Path) -> None:
    [fact] = facts(tmp_path, "a.txt", "Log in with password=hunter2-and-more-of-it first.")
    assert "hunter2" not in fact.to_json().decode()


@given(st.text(st.sampled_from("ab `\n.-~"), max_size=3000))
def test_any_text_is_cut_into_pieces_that_fit_and_hold_all_of_it(text: str) -> None:
    pieces = list(_markdown(text, "x"))
    assert all(piece.content.strip() and len(piece.content) <= MAX_CONTENT for piece in pieces)
    assert "".join("".join(piece.content.split()) for piece in pieces) == "".join(text.split())
