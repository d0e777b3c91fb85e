"""Find the embedded stack of a folder (`fleetlore up --data DIR`)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from fleetlore.errors import ConfigError

__all__ = ["ADAPTERS", "LOCK_FILE", "SIGNING_KEY", "STACK_FILE", "StackFolder", "roles_of"]

STACK_FILE = "stack.json"
LOCK_FILE = "stack.lock"
SIGNING_KEY = Path("keys", "adapter_ed25519")
ADAPTERS = Path("adapters")


@dataclass(frozen=True, slots=True)
class StackFolder:
    """The folder of a stack, which may be stopped now, and at other addresses later.

    Values of one path are equal, so that the agents of a process share what follows the stack. Raises ConfigError:
    there is no such folder.
    """

    data: Path

    def __post_init__(self) -> None:
        if not self.data.is_dir():
            raise ConfigError(
                f"no stack runs on {self.data}, there is no such folder; "
                f"start one with `fleetlore up --data {self.data}`"
            )

    def __str__(self) -> str:
        return f"of the stack on {self.data}"

    def read(self) -> dict[str, Any]:
        """Return the running stack's `stack.json`: `broker`, `milvus`, `public_key` and more."""
        path = self.data / STACK_FILE
        try:
            stack: dict[str, Any] = orjson.loads(path.read_bytes())
            if any(not isinstance(stack[name], str) for name in ("broker", "milvus", "public_key")):
                raise TypeError("an address or a key is no text")
            if any(type(stack.get(name, 1)) is not int for name in ("partitions", "fetch_wait_ms")):
                raise TypeError("the number of partitions or the wait of a fetch is none")
            runs = "pid" not in stack or _runs(int(stack["pid"]), self.data / LOCK_FILE)
        except FileNotFoundError:
            raise ConfigError(
                f"no stack runs on {self.data}; start one with `fleetlore up --data {self.data}`"
            ) from None
        except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
            raise ConfigError(f"{path} cannot be read: {error!r}") from None
        if not runs:
            raise ConfigError(
                f"the stack on {self.data} was ended without a stop; start it again with "
                f"`fleetlore up --data {self.data}`"
            )
        return stack


def roles_of(data: Path) -> dict[str, str]:
    """Return the URLs of the endpoints of a folder's running stack."""
    return dict(orjson.loads((data / STACK_FILE).read_bytes()).get("metrics", {}))


def _runs(process: int, lock: Path) -> bool:
    """Whether a stack holds the lock of this folder: a copy names the original's process."""
    try:
        import fcntl
    except ImportError:  # no stack runs on such a system
        return True
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:
        pass
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's process
        pass
    return True
