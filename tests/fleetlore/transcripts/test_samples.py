"""Chats that real packages wrote, by version: all are read, and the installed package still writes that form."""

import json
import re
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest

from fleetlore.transcripts.read import read_sessions
from fleetlore.wire import events as ev
from tests.fleetlore.transcripts.samples import DATA, FAULT, FOUND, PATHS, SAMPLES, shape_of
from tests.rows import for_each

# `make newest` installs one maker's package at a time.
_INSTALLED = {each.name for each in distributions()}
MAKERS = [name for name, (package, _) in SAMPLES.items() if package in _INSTALLED]


def samples_of(name: str) -> list[Path]:
    """The samples of a form, the newest version last."""
    found = [each for each in DATA.iterdir() if re.fullmatch(rf"{name}-[\d.]+\w*\.json", each.name)]
    return sorted(found, key=lambda path: [int(each) for each in re.findall(r"\d+", path.stem.removeprefix(name))])


@for_each("path", *sorted(DATA.glob("*-[0-9]*.json*")))
def test_every_sample_is_read_whole(path: Path) -> None:
    [session] = read_sessions(path)
    assert session.goal == "look" and not session.unanswered and not session.left_out
    failed, worked = [data for kind, data in session.events if kind == "outcome"]
    assert [each[ev.TOOL] for each in (failed, worked)] == ["read_file"] * 2
    assert [each[ev.ARGUMENTS] for each in (failed, worked)] == [{"path": path} for path in PATHS]
    assert failed[ev.ERROR_MESSAGE] in (FAULT, f"Error: {FAULT}") and worked[ev.RESULT] == FOUND


@pytest.mark.long
@for_each("name", *MAKERS)
def test_the_installed_package_writes_what_was_recorded(name: str) -> None:
    """Where it fails, write a sample of the new version: `python -m tests.fleetlore.transcripts.samples`."""
    written: Any = json.loads(json.dumps(SAMPLES[name][1]()))
    assert shape_of(written) == shape_of(json.loads(samples_of(name)[-1].read_text())["messages"])
