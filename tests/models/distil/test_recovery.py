from __future__ import annotations

import pytest

from models.distil.distiller import distil
from tests import build as sessions

OTHER = sessions.call("bash", "tail -n 3 log", "done")


@pytest.mark.parametrize(("line", "kept"), [("n = 1", False), ("import n", True), ("n = data()", True)])
def test_a_number_that_was_made_up_for_a_name_is_no_way_past_its_failure(line: str, kept: bool) -> None:
    failed = sessions.call("python", "print(gcd(7, 2*n + 1))", error="NameError: name 'n' is not defined")
    worked = sessions.call("python", f"{line}\nprint(gcd(7, 2*n + 1))", "1")
    judged = sessions.judgment(failed, worked, OTHER, label="success", probability=1.0, ended=9)
    assert any(each.kind == "recovery" for each in distil(judged)) is kept
