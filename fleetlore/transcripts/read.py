"""Read logged sessions in whatever form they lie: find the files, tell their form, and read them one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import orjson

from fleetlore.errors import ConfigError
from fleetlore.transcripts import atif, claude_code, inspect_log, messages, steps, swe_agent
from fleetlore.transcripts.session import LoggedSession

__all__ = ["FORMS", "files_of", "read_files", "read_sessions"]

Reader = Callable[[Path], Iterator[LoggedSession | None]]

#: Reader and endings of the files, by the name of the form.
FORMS: dict[str, tuple[Reader, tuple[str, ...]]] = {
    messages.FORM: (messages.read, (".jsonl", ".json")),
    claude_code.FORM: (claude_code.read, (".jsonl",)),
    inspect_log.FORM: (inspect_log.read, (".eval",)),
    atif.FORM: (atif.read, (".json",)),
    swe_agent.FORM: (swe_agent.read, (".traj",)),
}
_HEAD = 65_536


def files_of(paths: Sequence[Path], endings: Sequence[str]) -> list[Path]:
    """The files at and below some paths, in the order of their names.

    Raises:
        ConfigError: a path does not exist, or there is no file at all.
    """
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise ConfigError(f"{path} does not exist")
        below = path.rglob("*") if path.is_dir() else (path,)
        found += sorted(
            each for each in below if each.is_file() and (each == path or each.name.endswith(tuple(endings)))
        )
    if not found:
        raise ConfigError(f"{', '.join(map(str, paths))} holds no file that ends in {' or '.join(endings)}")
    return found


def read_files(form: str, files: Sequence[Path]) -> Iterator[LoggedSession | None]:
    """Sessions of files of one form, one after another; None for each part that could not be read.

    Raises:
        ConfigError: a file cannot be opened.
    """
    read, _ = FORMS[form]
    for path in files:
        try:
            yield from read(path)
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from None


def read_sessions(path: Path) -> list[LoggedSession]:
    """All sessions at and below a path, whatever their form.

    Raises:
        ConfigError: there are none, or a file cannot be read.
    """
    if not path.exists():
        raise ConfigError(f"{path} does not exist")
    own = sorted(path.rglob(f"{steps.TRAJECTORIES}*")) if path.is_dir() else []
    if own:
        found = [each for file in own if file.suffix in (".jsonl", ".gz") for each in steps.read(file)]
    else:
        files = files_of([path], [ending for _, endings in FORMS.values() for ending in endings])
        found = [each for file in files if (form := _form_of(file)) for each in read_files(form, [file])]
    sessions = [each for each in found if each is not None]
    if not sessions:
        raise ConfigError(f"{path} holds no logged session in any form: {steps.TRAJECTORIES}, {', '.join(FORMS)}")
    return sessions


def _form_of(path: Path) -> str | None:
    """The form of a file, by its ending or by how it begins."""
    if path.suffix == ".eval":
        return inspect_log.FORM
    if path.suffix == ".traj":
        return swe_agent.FORM
    with path.open("rb") as file:
        head = file.readline()
    try:
        first = orjson.loads(head)
    except orjson.JSONDecodeError:  # a document of several lines
        with path.open("rb") as file:
            return atif.FORM if b'"schema_version"' in file.read(_HEAD) else messages.FORM
    if not isinstance(first, dict):
        return messages.FORM
    if "steps" in first and "agent" in first:
        return atif.FORM
    if {"sessionId", "leafUuid", "snapshot"} & first.keys():
        return claude_code.FORM
    return messages.FORM if {"messages", "traj"} & first.keys() else None
