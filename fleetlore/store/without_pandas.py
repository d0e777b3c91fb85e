"""Import pymilvus without pandas, pyarrow and scipy: 80 MB of each worker, for tables that nothing here hands over.

Names stand in their place while pymilvus is imported and no longer, so whoever imports pandas gets pandas. Agents are
left alone, whose process may give pymilvus tables of its own.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib.util import find_spec
from types import ModuleType

_PANDAS = ("pandas", "pandas.api", "pandas.api.types")


class _Absent(ModuleType):
    """Has every name. No value is of its types, and its functions refuse what they are called with."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def _import() -> None:
    absent = {name: _Absent(name) for name in _PANDAS}
    sys.modules.update(absent)
    try:
        import pymilvus  # noqa: F401
    finally:
        for name in absent:
            del sys.modules[name]
    with suppress(ImportError, AttributeError):  # a private name, and without it a worker is larger by scipy alone
        from pymilvus.client.utils import SciPyHelper

        SciPyHelper._checked = True  # else it imports scipy to look whether a row holds a matrix of it


if "pymilvus" not in sys.modules and "pandas" not in sys.modules and find_spec("pymilvus") is not None:
    _import()
