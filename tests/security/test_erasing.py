"""No store knows what was erased, not even once all of it is sent again."""

from benchmarks.security.erasing import erased_by_store


async def test_no_store_knows_what_was_erased() -> None:
    for _, what, knew, left in await erased_by_store(count=60, erased=15):
        assert int(knew) > 0 and left == "0, 0", what
