"""Make the OpenAPI document from the relay's operations and their types."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from fleetlore.relay import schemas
from fleetlore.relay.api import OPERATIONS, PROBLEM, Operation

__all__ = ["openapi"]

_REF = "#/components/schemas/{name}"
_ABOUT = (
    "Agents in any language record what they do and are told what the fleet knows. Off loopback each request bears "
    "the agent's token. What an agent sends again under the same sequence counts once."
)
_LICENSE = {"name": "Apache-2.0", "identifier": "Apache-2.0"}
_CLOUDEVENTS = "application/cloudevents+json", "application/cloudevents-batch+json"
_HEADERS = "Fleetlore-Agent", "Fleetlore-Tenant"
_NAMED = "On loopback, where no token says it."
_FAILURES = {
    400: "The request is malformed.",
    401: "No known token.",
    403: "Another agent's or tenant's.",
    404: "This relay serves no such tenant.",
    409: "A session that this relay has not seen begin, and no `sequence`.",
    413: "The body is too large.",
    429: "The buffer is full: send the request again after Retry-After seconds.",
}
# Statuses of operations that record events.
_OF_EVENTS = (409, 429)


def openapi() -> dict[str, Any]:
    used = [each for operation in OPERATIONS for each in (operation.takes, operation.gives)]
    named = {each for each in used if each is not None and _is_struct(each)}
    queries = list(dict.fromkeys(each.query for each in OPERATIONS if each.query is not None))
    kinds = sorted({*named, schemas.Problem}, key=lambda each: each.__name__)
    (event, *_), parts = msgspec.json.schema_components([schemas.CloudEvent, *kinds, *queries], ref_template=_REF)
    parts["CloudEvent"] = event
    parameters = {each.__name__: parts.pop(each.__name__) for each in queries}
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, parameters)
    tokens = {"type": "apiKey", "in": "header", "name": "Fleetlore-Token"}
    told = {PROBLEM: _schema(schemas.Problem)}
    headers = {
        name: {"name": name, "in": "header", "schema": {"type": "string"}, "description": _NAMED} for name in _HEADERS
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "fleetlore relay", "version": "1", "description": _ABOUT, "license": _LICENSE},
        "servers": [{"url": "http://127.0.0.1:7411"}],
        "security": [{}, {"token": []}, {"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": parts,
            "parameters": headers,
            "responses": {f"Problem{each}": {"description": said, "content": told} for each, said in _FAILURES.items()},
            "securitySchemes": {"token": tokens, "bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(operation: Operation, parameters: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": operation.handler.__name__,
        "summary": operation.summary,
        "parameters": list(_parameters(operation, parameters)),
        "responses": _responses(operation),
    }
    if operation.takes is not None:
        made["requestBody"] = {"required": True, "content": {"application/json": _schema(operation.takes)}}
    elif operation.method == "POST":
        one = {"$ref": _REF.format(name="CloudEvent")}
        contents = {_CLOUDEVENTS[0]: {"schema": one}, _CLOUDEVENTS[1]: {"schema": {"type": "array", "items": one}}}
        said = "In binary mode the attributes are headers `ce-…` and the body is `data`."
        made["requestBody"] = {"required": True, "content": contents, "description": said}
    return made


def _parameters(operation: Operation, known: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name in re.findall(r"{(\w+)}", operation.path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
    if operation.query is not None:
        for name, schema in known[operation.query.__name__]["properties"].items():
            yield {"name": name, "in": "query", "schema": schema}
    yield from ({"$ref": f"#/components/parameters/{name}"} for name in _HEADERS)


def _responses(operation: Operation) -> dict[str, Any]:
    content = (
        {"application/json": _schema(operation.gives)} if _is_struct(operation.gives) else {"text/event-stream": {}}
    )
    statuses = [each for each in _FAILURES if operation.status == 202 or each not in _OF_EVENTS]
    refused = {str(each): {"$ref": f"#/components/responses/Problem{each}"} for each in statuses}
    return {str(operation.status): {"description": "Done.", "content": content}} | refused


def _schema(kind: type) -> dict[str, Any]:
    return {"schema": {"$ref": _REF.format(name=kind.__name__)}}


def _is_struct(kind: type) -> bool:
    return issubclass(kind, msgspec.Struct)
