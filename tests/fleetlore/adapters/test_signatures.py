import stat
import subprocess
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from fleetlore.adapters.signatures import SigningKey, create_signing_key, load_signing_key, public_keys, verify
from fleetlore.errors import AdapterRefused, ConfigError
from fleetlore.wire.adapter_manifest import AdapterRecord, AnyRecord, DataRange, LanguageModelManifest, Revocation
from tests.random_adapters import KEY, OTHER, TRUSTED, manifest_for, random_weights
from tests.rows import for_each

Record = AdapterRecord[LanguageModelManifest]


def record(**changes: object) -> Record:
    data = (DataRange("fleetlore.acme.judgments", 2, 10, 70),)
    manifest = manifest_for(random_weights(1), "acme", data=data, metrics={"auroc": 0.91}, tools=("a", "b"))
    made = AdapterRecord(manifest=manifest, channel="stable", epoch=7, reason="test", created=1_000.0)
    return structs.replace(made, **changes)


def test_a_record_comes_back_as_it_was_signed_and_has_the_same_bytes_each_time() -> None:
    assert KEY.sign(record()) == KEY.sign(record()) != KEY.sign(record(epoch=8))
    assert verify(KEY.sign(record()), TRUSTED, AnyRecord) == (record(), KEY.key_id)


SIGNED = KEY.sign(record())


@given(st.integers(0, len(SIGNED) - 1), st.integers(1, 255))
def test_no_changed_byte_passes(place: int, flip: int) -> None:
    changed = bytearray(SIGNED)
    changed[place] ^= flip
    try:
        accepted, _ = verify(bytes(changed), TRUSTED, AnyRecord)
    except AdapterRefused:
        return
    # Base64 and JSON have more than one spelling for the same value; what was signed must still be what is read.
    assert accepted == record()


@for_each(
    "data, reason",
    *((data, "malformed") for data in (b"", b"[1]", b"null", b"{}", SIGNED[:-40])),
    (OTHER.sign(record()), "unknown_key"),
    (KEY.sign(record(schema=2)), "schema"),
    (KEY.sign(Revocation("acme", "key", "a", "no", 1.0)), "malformed"),
    (orjson.dumps(orjson.loads(SIGNED) | {"key_id": []}), "unknown_key"),
    (orjson.dumps(orjson.loads(SIGNED) | {"signature": ""}), "tampered"),
    (orjson.dumps(orjson.loads(SIGNED) | {"field_of_a_later_release": 1}), "tampered"),
    # orjson reads 1,024 levels and writes 254.
    (SIGNED[:-1] + b',"deep":' + b"[" * 300 + b"]" * 300 + b"}", "malformed"),
)
def test_what_is_not_right_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(AdapterRefused) as refused:
        verify(data, TRUSTED, AnyRecord)
    assert refused.value.reason == reason


def test_a_key_made_by_openssl_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    try:
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", file], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    assert len(SigningKey.from_pem(file.read_bytes()).key_id) == 16


@for_each("key", b"", b"-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n", b"\xff", "", "abc", "AAAA", "é")
def test_a_bad_key_is_a_config_error_and_none_prints_itself(key: str | bytes) -> None:
    with pytest.raises(ConfigError):
        SigningKey.from_pem(key) if isinstance(key, bytes) else public_keys(key)
    assert repr(KEY) == "SigningKey()"


def test_a_key_is_made_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    file = tmp_path / "keys" / "adapter_ed25519"
    public = create_signing_key(file).public_base64
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert create_signing_key(file).public_base64 == load_signing_key(file).public_base64 == public
    assert create_signing_key(tmp_path / "b").public_base64 != public
    assert [each.name for each in file.parent.iterdir()] == [file.name]


def test_a_damaged_key_is_never_replaced_and_a_missing_one_is_said(tmp_path: Path) -> None:
    file = tmp_path / "key"
    with pytest.raises(ConfigError, match="cannot be read"):
        load_signing_key(file)
    file.write_bytes(b"damaged")
    with pytest.raises(ConfigError, match=f"{file} cannot be read: it is no unencrypted PEM"):
        create_signing_key(file)
    assert file.read_bytes() == b"damaged"
