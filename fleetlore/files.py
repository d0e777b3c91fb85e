"""Read lines of a text file, and write files whole or not at all: other processes read the old file or the new one."""

import codecs
import os
import threading
from collections.abc import Iterator
from pathlib import Path

_OWNER_ALONE = 0o600


def write_whole(file: Path, data: bytes, mode: int = _OWNER_ALONE) -> None:
    # Fleets in several threads may write it.
    draft = file.with_name(f".{file.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as handle:
            handle.write(data)
            handle.flush()
            # After a power cut the new name could be an empty file.
            os.fsync(handle.fileno())
        draft.replace(file)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def lines_of(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file in UTF-8 or, with its byte order mark, in UTF-16."""
    with path.open("rb") as file:
        if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            with path.open(encoding="utf-16", errors="replace", newline="\n") as text:
                yield from (line.encode("utf-8", "replace") for line in text)
            return
        file.seek(0)
        yield file.readline().removeprefix(codecs.BOM_UTF8)
        yield from file
