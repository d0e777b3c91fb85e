"""Read what the scripted world is made of from `catalogue.toml`; its head says what the texts may use.

A :class:`~benchmarks.demo.world.World` draws from it by its seed.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import msgspec


def package_file(name: str) -> bytes:
    return files("benchmarks.demo").joinpath(name).read_bytes()


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An error as the environment words it: ``kind`` is the OpenTelemetry ``error.type``, ``text`` its message."""

    kind: str
    text: str


class Remedy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call that establishes a precondition in some worlds; in others it does nothing, or fails with ``fault``."""

    tool: str
    arguments: dict[str, Any]
    result: str
    fault: Fault | None = None


class Precondition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that must hold before a job works.

    ``held``: successful uses it is good for at the start of a session; ``lasts``: uses one remedy buys (None: no
    limit). ``about``: the entity it is bound to, so that one installed package does not count for another.
    """

    fault: Fault
    remedies: tuple[Remedy, ...]
    held: int = 0
    lasts: int | None = None
    about: str = ""


class Job(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of subgoal: the tool that serves it, the argument left to the agent, and the obstacles."""

    aim: str
    tool: str
    arguments: dict[str, Any]
    choice: str
    values: tuple[Any, ...]
    refusal: Fault
    result: str
    needs: tuple[str, ...]
    networked: bool = False


class Catalogue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything a kind of world is drawn from, by name."""

    domains: dict[str, tuple[Job, ...]]
    preconditions: dict[str, Precondition]
    entities: dict[str, tuple[str, ...]]
    flaky: tuple[Fault, ...]


CATALOGUE = msgspec.toml.decode(package_file("catalogue.toml"), type=Catalogue)
