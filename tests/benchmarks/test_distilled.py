"""A model's notes are read as a worker would tell them."""

from __future__ import annotations

from pathlib import Path

from benchmarks.distilled import Pair, _notes
from tests.build import call, judgment
from tests.doubles.model_endpoint import ModelEndpoint


async def test_no_end_user_stands_in_what_is_read(tmp_path: Path) -> None:
    known = call("find", "{}", '{"last_name": "lindqvist"}')
    failed = judgment(
        known, call("book", '{"seat": "windw"}', error="unknown seat windw of lindqvist"), label="failure"
    )
    helped = judgment(call("book", '{"seat": "window"}'))
    answer = {"items": [{"tool": "book", "instead_of": "windw", "use": "window"}]}
    with ModelEndpoint(lambda request: answer) as endpoint:
        url = endpoint.url.removesuffix("/v1")
        [said] = await _notes([Pair("x", failed, helped)], "m1", [url], tmp_path / "answers")
    assert "<last name>" in said.candidate.content and "lindqvist" not in said.candidate.said
