"""The caches that a timing begins without."""

import re
from functools import lru_cache

from benchmarks.cpu import forget_answers


def test_the_product_forgets_its_answers_beside_a_package_that_caches_a_built_in() -> None:
    split, length = lru_cache(maxsize=8)(re.compile("-").split), lru_cache(maxsize=8)(lambda text: len(text))
    length.__module__ = "fleetlore.words"
    assert split("a-b") == ["a", "b"] and length("ab") == 2
    forget_answers()
    assert (split.cache_info().currsize, length.cache_info().currsize) == (1, 0)
