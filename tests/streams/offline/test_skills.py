"""Hints become skills of coding agents: those that the gate lets pass, in the form that these agents read."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from fleetlore.config import Settings
from fleetlore.errors import ConfigError
from fleetlore.recall.index import LoreIndex
from fleetlore.wire.lore import Decision, Hint, MemoryItem
from streams.offline.lore_file import skills_of, write_skills
from tests.streams.log_pipeline import Story
from tests.streams.offline.test_lore_file import learned

SETTINGS = Settings()


async def index() -> LoreIndex:
    pipeline, found = await learned(Story("acme").fleet()), LoreIndex()
    for row in pipeline.store.collections["items"].values():
        if row["body"]:
            found.put_item(MemoryItem.from_json(row["body"]))
    return found


async def test_a_skill_holds_the_hints_that_the_gate_lets_pass(tmp_path: Path) -> None:
    lore = await index()
    names = write_skills(tmp_path, skills_of(lore, SETTINGS, 0.0))
    assert names, [each.title for each in lore.items.values()]
    for name in names:
        text = (tmp_path / name / "SKILL.md").read_text()
        front = re.match(r'---\nname: ([a-z0-9-]{1,64})\ndescription: "[^\n]{1,1020}"\n---\n', text)
        assert front and front[1] == name
    whole = "\n".join((tmp_path / name / "SKILL.md").read_text() for name in names)
    assert "pip install numpy" in whole
    for item in list(lore.items.values()):
        lore.put_item(replace(item, agents=1))
    assert skills_of(lore, SETTINGS, 0.0) == {}, "a hint of one agent alone"


async def test_persons_hints_come_first_with_their_author(tmp_path: Path) -> None:
    lore = await index()
    for id, on, until in (("h1", False, 0.0), ("h2", True, 0.0), ("h3", False, 5.0)):
        hint = Hint(
            text=f"Ask before you drop {id} <b>.", author="kim", written=1.0, tool="sql", start=True, until=until
        )
        lore.put_hint(Decision(kind="hint", id=id, on=on, by="kim", why="", time=1.0, hint=hint))
    found = skills_of(lore, SETTINGS, 10.0)["the tool sql"]
    assert found[0] == "at the start: Ask before you drop h1 ‹b>. (written by kim)"
    assert not any("h2" in line or "h3" in line for line in found)


async def test_revoked_items_are_left_out(tmp_path: Path) -> None:
    lore = await index()
    for id in list(lore.items):
        lore.forget(id)
    assert skills_of(lore, SETTINGS, 0.0) == {}


def test_a_hostile_name_stays_in_its_folder(tmp_path: Path) -> None:
    names = write_skills(
        tmp_path / "out", {"the tool ../../etc/\n---\nname: x": ["a"], "the tool ": ["b"], "x" * 500: ["c"]}
    )
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == sorted(names)
    assert all(len(name) <= 64 and re.fullmatch(r"[a-z0-9-]+", name) for name in names)
    for name in names:
        assert (tmp_path / "out" / name / "SKILL.md").read_text().count("\n---\n") == 1


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        write_skills(tmp_path / "file", {"the tool x": ["a"]})
