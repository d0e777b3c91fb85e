"""Modules that a process of the stack does not import."""

import subprocess
import sys

import pytest

from tests.rows import for_each

# Each starts a process that imports for seconds.
pytestmark = pytest.mark.long


def _imported(program: str) -> set[str]:
    """The packages that a fresh process has after it."""
    command = [sys.executable, "-c", f"import sys\n{program}\nprint(*sys.modules)"]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in said.stdout.split()}


def test_a_worker_imports_no_tables() -> None:
    found = _imported("import streams.runtime.worker")
    assert "pymilvus" in found
    assert not found & {"pandas", "pyarrow", "scipy"}


def test_a_client_whose_private_names_have_moved_is_imported() -> None:
    found = _imported(
        "import builtins\n"
        "plain = builtins.__import__\n"
        "def moved(name, globals=None, locals=None, fromlist=(), level=0):\n"
        "    if name == 'pymilvus.client.utils' and 'SciPyHelper' in (fromlist or ()): raise ImportError(name)\n"
        "    return plain(name, globals, locals, fromlist, level)\n"
        "builtins.__import__ = moved\n"
        "import sinks.milvus"
    )
    assert "pymilvus" in found and not found & {"pandas", "pyarrow", "scipy"}


@for_each(
    "program",
    "import sinks.milvus, pandas\nassert pandas.DataFrame({'a': [1]}).a[0] == 1",
    "import pandas, sinks.milvus, pymilvus.orm.schema as schema\nassert schema.pd is pandas",
)
def test_who_wants_pandas_gets_pandas_and_who_has_it_keeps_it(program: str) -> None:
    pytest.importorskip("pandas")
    _imported(program)


_PROCESSES = {
    "stack": "streams.embedded.stack",
    "trainer": "streams.training.trainer, streams.runtime.lifecycle",
    "console": "fleetlore.http_server, streams.console.actions, streams.console.pages, streams.console.requests",
    "relay": "fleetlore.relay.app, fleetlore.agent.fleet",
}


@for_each("name", *_PROCESSES)
def test_a_process_that_needs_no_store_has_no_client_of_one(name: str) -> None:
    heavy = {"pymilvus", "grpc", "pandas", "torch"} | ({"numpy"} if name == "stack" else set())
    assert not _imported(f"import {_PROCESSES[name]}") & heavy
