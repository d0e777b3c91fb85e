"""The relay answers as its OpenAPI document says, whatever is sent: schemathesis makes requests of the document."""

import os
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetlore.relay.app import relay_app
from tests.fuzz.worker import Worker, fleet_of

DOCUMENT = Path(__file__).parents[2] / "docs/reference/openapi.json"
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "10"))
# An answer to `/v1/stream` has no end.
OPERATIONS = [
    f"{method.upper()} {path}"
    for path, methods in orjson.loads(DOCUMENT.read_bytes())["paths"].items()
    for method in methods
    if path != "/v1/stream"
]


@cache
def checked(label: str) -> tuple[Any, Any]:
    """Return an operation, and a function that sends one of its cases to the relay and checks the answer."""
    import schemathesis  # takes seconds
    from schemathesis import checks
    from schemathesis.specs.openapi import checks as conformance

    app = relay_app({"default": fleet_of(Worker())})
    conforms = ("status_code", "content_type", "response_headers", "response_schema")
    every = [checks.not_a_server_error, *(getattr(conformance, f"{each}_conformance") for each in conforms)]
    operations = {each.ok().label: each.ok() for each in schemathesis.openapi.from_path(DOCUMENT).get_all_operations()}
    return operations[label], lambda case: case.call_and_validate(app=app, checks=every)


@pytest.mark.parametrize("label", OPERATIONS)
@settings(derandomize=True, max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_answer_is_one_that_the_document_names(label: str, data: st.DataObject) -> None:
    operation, check = checked(label)
    check(data.draw(operation.as_strategy()))
