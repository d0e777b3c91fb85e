"""A process of a stack loads no more than its role needs."""

import subprocess
import sys

import pytest

OFFLINE = """
import importlib, pkgutil, streams.offline
for module in pkgutil.iter_modules(streams.offline.__path__, "streams.offline."):
    importlib.import_module(module.name)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("code", "without"),
    [
        ("import streams.embedded.supervisor", {"fleetlore", "ssl", "orjson", "msgspec"}),  # one for each process
        ("import streams.runtime.app", {"openai", "models.llm.client", "sklearn"}),
        ("import streams.offline.backfill", {"models.backtest"}),
        (OFFLINE, {"faust"}),
    ],
    ids=["supervisor", "worker", "backfill", "offline"],
)
def test_a_role_loads_no_more_than_it_needs(code: str, without: set[str]) -> None:
    program = f"{code}\nimport sys; print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert not without & set(said.split())
