from __future__ import annotations

import stat
from pathlib import Path

import pytest

from fleetlore.errors import ConfigError
from sinks.signing_key import create_signing_key, load_signing_key


def test_a_key_is_made_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    file = tmp_path / "keys" / "adapter_ed25519"
    public = create_signing_key(file).public_base64
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert create_signing_key(file).public_base64 == public
    assert load_signing_key(file).public_base64 == public
    assert [each.name for each in file.parent.iterdir()] == [file.name]


def test_two_keys_differ(tmp_path: Path) -> None:
    assert create_signing_key(tmp_path / "a").key_id != create_signing_key(tmp_path / "b").key_id


def test_a_missing_key_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_signing_key(tmp_path / "none")


def test_a_damaged_key_is_never_replaced(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"damaged")
    with pytest.raises(ConfigError):
        create_signing_key(file)
    assert file.read_bytes() == b"damaged"
