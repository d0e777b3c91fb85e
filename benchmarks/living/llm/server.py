"""Run llama.cpp's server for as long as it is needed, in a separate environment (`llama_server.py`)."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from benchmarks.venvs import python_with
from fleetlore.errors import ModelUnavailable
from streams.embedded.broker import free_port

RUNTIME = "xllamacpp==2026.10.11549"
SCRIPT = Path(__file__).with_name("llama_server.py")
# Each with one thread.
SERVERS = 2
# Prompts that one of them reads side by side.
SLOTS = 2
# Tokens of a prompt and its answer.
TOKENS = 4096
START_SECONDS = 120.0


@contextmanager
def serving(file: Path) -> Iterator[list[str]]:
    """The URLs of servers of a model's GGUF file.

    Raises:
        ModelUnavailable: llama.cpp does not serve the file.
    """
    python, ports = python_with(RUNTIME), [free_port() for _ in range(SERVERS)]
    command = [str(python), str(SCRIPT), str(file), *map(str, (SLOTS, TOKENS, *ports))]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        urls = [f"http://127.0.0.1:{port}" for port in ports]
        end = time.monotonic() + START_SECONDS
        while not all(map(_is_ready, urls)):
            if time.monotonic() > end or server.poll() is not None:
                raise ModelUnavailable(f"llama.cpp does not serve {file}")
            time.sleep(0.2)
        yield urls
    finally:
        server.kill()
        server.wait()


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health").status_code == 200
    except httpx.HTTPError:
        return False
