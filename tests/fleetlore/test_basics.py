"""The clock, the files and the words that all rooms use."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import pytest

from fleetlore.files import write_whole
from fleetlore.testing import FakeClock
from fleetlore.words import names_of, parts_of, words


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


def test_time_moves_only_when_told() -> None:
    clock = FakeClock(100.0)
    assert (clock.now(), clock.monotonic()) == (100.0, 0.0)
    clock.advance(2.5)
    assert (clock.now(), clock.monotonic()) == (102.5, 2.5)
    clock.set(50.0)
    assert (clock.now(), clock.monotonic()) == (50.0, 2.5), "the wall clock alone may be stepped"
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)


def test_names_are_found_by_their_parts() -> None:
    assert words("Table 'car_1.carsData' doesn't exist") == ["table", "car", "1", "cars", "data", "doesn", "t", "exist"]


def test_names_in_a_text_are_lower_case_and_those_of_a_dotted_one_apart() -> None:
    assert names_of("SELECT Car_Makers.Id, x FROM t1 ON 'Ford'") == {
        "select", "car_makers", "id", "from", "t1", "on", "ford",
    }  # fmt: skip


def test_a_compound_name_has_parts() -> None:
    assert parts_of("HTTPServer_dailyPrice-x2") == ["http", "server", "daily", "price", "x2"]
