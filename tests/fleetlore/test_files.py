from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import pytest

from fleetlore.files import write_whole


def test_a_file_is_its_owners_alone_unless_said_otherwise(tmp_path: Path) -> None:
    write_whole(tmp_path / "kept", b"1")
    write_whole(tmp_path / "shown", b"2", 0o400)
    found = [(each.read_bytes(), each.stat().st_mode & 0o777) for each in sorted(tmp_path.iterdir())]
    assert found == [(b"1", 0o600), (b"2", 0o400)]


def test_what_cannot_be_written_leaves_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "kept"
    write_whole(file, b"old")
    with patch("os.fsync", side_effect=OSError("no space left")), pytest.raises(OSError, match="no space"):
        write_whole(file, b"new")
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"old"]


def test_threads_that_write_the_same_file_do_not_meet(tmp_path: Path) -> None:
    file = tmp_path / "kept"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: write_whole(file, b"%d" % number), range(200)))
    assert [each.name for each in tmp_path.iterdir()] == ["kept"]
