from __future__ import annotations

from pathlib import Path

from sinks.adapter_files import LocalMirror


def test_an_empty_folder_holds_nothing(tmp_path: Path) -> None:
    store = LocalMirror(tmp_path / "none")
    assert store.tenants() == []
    assert store.versions("acme", "calls") == {}
    assert store.pointer("acme", "calls") is None


def test_what_is_saved_is_there_for_the_next_process(tmp_path: Path) -> None:
    LocalMirror(tmp_path).save("acme", "calls", "v1", b"weights", b"manifest")
    LocalMirror(tmp_path).point("acme", "calls", b"pointer")
    store = LocalMirror(tmp_path)
    assert store.versions("acme", "calls") == {"v1": (b"weights", b"manifest")}
    assert store.pointer("acme", "calls") == b"pointer"
    assert store.versions("acme", "retrieval") == {} and store.pointer("acme", "retrieval") is None
    assert store.tenants() == ["acme"]


def test_a_newer_pointer_replaces_the_old_one_and_leaves_no_draft(tmp_path: Path) -> None:
    store = LocalMirror(tmp_path)
    store.point("acme", "calls", b"1")
    store.point("acme", "calls", b"2")
    assert store.pointer("acme", "calls") == b"2"
    assert len(list((tmp_path / "acme" / "calls").iterdir())) == 1


def test_weights_whose_manifest_was_never_written_are_no_version(tmp_path: Path) -> None:
    store = LocalMirror(tmp_path)
    store.save("acme", "calls", "v1", b"weights", b"manifest")
    (tmp_path / "acme" / "calls" / "v1.json").unlink()
    assert store.versions("acme", "calls") == {}


def test_a_dropped_version_is_gone_and_dropping_twice_is_harmless(tmp_path: Path) -> None:
    store = LocalMirror(tmp_path)
    store.save("acme", "calls", "v1", b"weights", b"manifest")
    store.drop("acme", "calls", "v1")
    store.drop("acme", "calls", "v1")
    assert list((tmp_path / "acme" / "calls").iterdir()) == []
