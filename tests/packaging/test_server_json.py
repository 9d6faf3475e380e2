"""`server.json` is what the MCP registry takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from mcp_server.home import HOME_VARIABLE
from tests.packaging.programs import ROOT

SCHEMA = json.loads((Path(__file__).parent / "server_json.schema.json").read_text("utf-8"))


@pytest.fixture
def document() -> Any:
    return json.loads((ROOT / "server.json").read_text("utf-8"))


def test_it_is_valid(document: Any) -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(document, SCHEMA, jsonschema.Draft7Validator)


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", "context-manager-mcp"), ("description", "x" * 101), ("version", "latest"), ("nam", "x")],
)
def test_the_schema_refuses_what_the_registry_refuses(document: Any, field: str, value: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, field: value}, SCHEMA, jsonschema.Draft7Validator)


def test_the_variable_it_offers_is_ours(document: Any) -> None:
    (package,) = document["packages"]
    assert [variable["name"] for variable in package["environmentVariables"]] == [HOME_VARIABLE]
