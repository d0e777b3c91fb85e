"""No caller displaces what others hold, whatever it does."""

import time
from collections import Counter
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from fleetlore.limits import Shares, refusals

CALLERS = st.tuples(st.sampled_from("xy"), st.sampled_from("abc"))


def test_a_caller_alone_uses_everything_and_loses_its_own_oldest() -> None:
    gone: list[tuple[int, str]] = []
    shares = Shares[int, str](3, "things_of_a_test", left=lambda *entry: gone.append(entry))
    for number in range(3):
        shares.put(("t", "a"), number, str(number))
    assert shares.get(0) == "0" and not gone
    shares.put(("t", "a"), 3, "3")
    shares.put(("t", "a"), 2, "new")
    assert gone == [(1, "1")], "0 was used after it"
    assert shares.get(2) == "new"
    assert shares.pop(2) == "new" and shares.pop(2) is None and shares.get(2) is None and len(shares) == 2
    assert refusals()["things_of_a_test_forgotten"] == 1


def cpu_of(entries: int) -> float:
    shares = Shares[int, int](entries // 2, "things_of_a_test")
    began = time.thread_time()
    for number in range(entries):
        shares.put(("t", number), number, number)
    return time.thread_time() - began


def test_a_flood_of_names_costs_each_entry_the_same() -> None:
    small, large = (min(cpu_of(entries) for _ in range(5)) for entries in (1_000, 16_000))
    assert large <= 4 * 16 * small  # 256 times as much where each entry costs what all before it do


@given(st.lists(st.tuples(CALLERS, st.integers(0, 30), st.booleans()), min_size=60, max_size=200), st.integers(1, 12))
def test_who_holds_an_equal_share_loses_nothing(steps: list[tuple[tuple[str, str], int, bool]], limit: int) -> None:
    model, values, left = dict[tuple[object, int], int](), count(), list[tuple[tuple[object, int], int]]()
    shares = Shares[tuple[object, int], int](limit, "things_of_a_test", left=lambda *entry: left.append(entry))
    for caller, number, is_removed in steps:
        key = caller, number
        if is_removed:
            assert shares.pop(key) == model.pop(key, None)
            continue
        tenants, names = Counter(each[0][0] for each in model), Counter(each[0] for each in model)
        value = next(values)
        shares.put(caller, key, value)
        assert len(left) == (key not in model and len(model) == limit)
        if left:
            (owner, number), lost = left.pop()
            assert model.pop((owner, number)) == lost
            tenant = owner[0]
            assert tenants[tenant] == max(tenants.values())
            assert names[owner] == max(size for each, size in names.items() if each[0] == tenant)
            if tenants[caller[0]] == max(tenants.values()):
                assert tenant == caller[0]
                if names[caller] == names[owner]:
                    assert owner == caller, "its own go first"
        model[key] = value
        assert len(shares) == len(model) <= limit
    for key, value in model.items():
        assert shares.get(key) == value
