"""The settings say which model a worker asks, and nothing unused is imported."""

import subprocess
import sys

import pytest

from fleetlore.config import Settings
from sinks.metrics import Metrics
from streams.stages.pipeline import language_model


def test_without_settings_there_is_no_model() -> None:
    assert language_model(Settings(), Metrics("worker")) is None


@pytest.mark.long
def test_nothing_of_a_model_is_loaded_where_none_is_set() -> None:
    code = (
        "import sys, streams.runtime.app\n"
        "loaded = {'openai', 'models.llm.client', 'sklearn'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.long
def test_nothing_offline_imports_faust() -> None:
    code = (
        "import importlib, pkgutil, sys, streams.offline\n"
        "for module in pkgutil.iter_modules(streams.offline.__path__, 'streams.offline.'):\n"
        "    importlib.import_module(module.name)\n"
        "assert 'faust' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
