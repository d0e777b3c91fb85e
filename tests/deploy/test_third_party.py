"""The licenses of what the images install are known, and the page lists them."""

from email.message import Message
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

import pytest

from deploy.third_party import PAGE, license_of, page
from tests.rows import for_each


class _Stated(Distribution):
    """A package whose metadata has these fields."""

    def __init__(self, name: str, **fields: str) -> None:
        self._fields = {"Name": name, **{key.replace("_", "-"): value for key, value in fields.items()}}

    @property
    def metadata(self) -> Any:
        message = Message()
        for key, value in self._fields.items():
            message[key] = value
        return message

    @property
    def name(self) -> str:
        return self._fields["Name"]

    def read_text(self, filename: str) -> None:
        return None

    def locate_file(self, path: Any) -> Path:
        return Path(path)


def test_the_page_is_what_the_script_writes() -> None:
    assert PAGE.read_text() == page(), "run `make licenses`"


@for_each(
    "fields",
    {"License_Expression": "AGPL-3.0-only"},
    {"License": "GPL"},
    {"License_Expression": "MIT AND GPL-3.0-or-later"},
    {"License": "Llama 2 Community License"},
    {"Classifier": "License :: Other/Proprietary License"},
    {},
)
def test_an_unknown_license_is_refused_by_the_packages_name(fields: dict[str, str]) -> None:
    with pytest.raises(SystemExit, match="a-package: the license"):
        license_of(_Stated("a-package", **fields))


@for_each(
    "fields, spdx",
    ({"License_Expression": "Apache-2.0 OR BSD-3-Clause"}, "Apache-2.0 OR BSD-3-Clause"),
    ({"License": "MIT License"}, "MIT"),
    (
        {"License": "Copyright of somebody, " * 20, "Classifier": "License :: OSI Approved :: BSD License"},
        "BSD-3-Clause",
    ),
)
def test_a_permissive_license_is_read_from_old_and_new_metadata(fields: dict[str, str], spdx: str) -> None:
    assert license_of(_Stated("a-package", **fields)) == spdx
