from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.backtest.advice.figures import advice_figures, fail_at_share
from fleetlore.fingerprint.names import FailureKind
from tests.models.backtest.made import SILENT, call, heard, log

GONE = "Table 'shop.cars' doesn't exist"


def test_what_was_said_is_held_against_what_came() -> None:
    of = log(call("select * from cars", error=GONE), call("select * from makers"), call("submit"), call("select 1"))
    kind = of.calls[0].kind
    assert kind is not None
    right = SILENT._replace(risk=0.9, warned=True, named=kind, text="ten chars.")
    wrong = SILENT._replace(risk=0.2, warned=True, named=FailureKind("timeout", ()), text="ten chars.")
    found = advice_figures([of], [heard(of, right, wrong, SILENT, SILENT)], [("A", "P")], 0)
    row = found.advice["shop"]["A"]
    assert (row["calls"], row["failed"], row["warned"]) == (3, 1 / 3, 2 / 3)
    assert (row["fail_warned"], row["fail_unwarned"]) == (0.5, 0.0)
    assert (row["named_kind"], row["named_exact"]) == (1.0, 1.0)
    # Where nothing is said the risk is the base rate, here below that of the failed call.
    assert row["auroc"] == 1.0 and row["auroc_first"] is None
    assert row["chars_call"] == pytest.approx(20 / 3) and row["chars_session"] == 20
    assert found.advice["shop"]["P"] == row
    assert found.beside["shop"]["A"]["pseudo_calls"] == {"submit": {"calls": 1, "failed": 0.0, "warned": 0.0}}
    first = found.beside["shop"]["A"]["first_calls"]
    assert (first["calls"], first["warned"], first["recall"]) == (1, 1.0, 1.0)


def test_a_name_that_is_not_the_one_is_the_kind_alone() -> None:
    of = log(call("select * from cars", error=GONE))
    kind = of.calls[0].kind
    assert kind is not None
    said = SILENT._replace(warned=True, named=FailureKind(kind.kind, ("owners",)))
    row = advice_figures([of], [heard(of, said)], [("A",)], 0).advice["shop"]["A"]
    assert (row["named_kind"], row["named_exact"]) == (1.0, 0.0)


def test_slices_of_two_runs_stand_side_by_side() -> None:
    of = log(call("select 1"), call("select * from cars", error=GONE))
    figures, other = (advice_figures([of], [heard(of)], [(name,)], 0) for name in ("A", "P"))
    figures.add(other)
    assert set(figures.advice["shop"]) == set(figures.beside["shop"]) == {"A", "P"}


def test_the_surest_calls_are_taken_and_ties_share() -> None:
    failed = np.array([True, False, True, False])
    score = np.array([0.9, 0.5, 0.5, 0.1])
    assert fail_at_share(score, failed, 0.25) == 1.0
    assert fail_at_share(score, failed, 0.5) == 0.75
    assert fail_at_share(score, failed, 0.0) is None


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1), st.floats(0.01, 1.0))
def test_a_share_of_fails_is_one_and_of_all_calls_the_base_rate(rows: list[tuple[int, bool]], share: float) -> None:
    score, failed = np.array([float(s) for s, _ in rows]), np.array([f for _, f in rows])
    found = fail_at_share(score, failed, share)
    assert found is not None and -1e-9 <= found <= 1 + 1e-9
    assert fail_at_share(score, failed, 1.0) == pytest.approx(failed.mean())
    assert fail_at_share(np.zeros(len(rows)), failed, share) == pytest.approx(failed.mean())
