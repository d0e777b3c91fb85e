"""The relay answers as its OpenAPI document says, whatever is sent: schemathesis makes requests of the document."""

import os
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from fleetlore.relay.app import relay_app
from tests.fuzz.worker import Worker, fleet_of

DOCUMENT = Path(__file__).parents[2] / "docs/reference/openapi.json"
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "10"))
CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
)


APP = relay_app({"default": fleet_of(Worker())})
# An answer to `/v1/stream` has no end.
SCHEMA = schemathesis.openapi.from_path(DOCUMENT).exclude(path="/v1/stream")
OPERATIONS = {each.ok().label: each.ok() for each in SCHEMA.get_all_operations()}


@pytest.mark.parametrize("label", OPERATIONS)
@settings(derandomize=True, max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_answer_is_one_that_the_document_names(label: str, data: st.DataObject) -> None:
    case = data.draw(OPERATIONS[label].as_strategy())
    case.call_and_validate(app=APP, checks=list(CHECKS))
