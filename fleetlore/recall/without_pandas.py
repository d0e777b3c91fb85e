"""Import pymilvus without pandas, pyarrow and scipy, which saves a worker 80 MB.

Stub modules replace them during the import only.
"""

import sys
from contextlib import suppress
from importlib.util import find_spec
from types import ModuleType


class _Absent(ModuleType):
    """A module with every name. No value is an instance of its types."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


if "pymilvus" not in sys.modules and "pandas" not in sys.modules and find_spec("pymilvus") is not None:
    _absent = {name: _Absent(name) for name in ("pandas", "pandas.api", "pandas.api.types")}
    sys.modules.update(_absent)
    try:
        import pymilvus  # noqa: F401
    finally:
        for name in _absent:
            del sys.modules[name]
    with suppress(ImportError, AttributeError):  # private; without it a worker also loads scipy
        from pymilvus.client.utils import SciPyHelper

        SciPyHelper._checked = True  # no scipy to test a row for its matrices
