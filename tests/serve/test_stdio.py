"""Lines that a client cut in the middle of a character."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCRequest, jsonrpc_message_adapter
from pydantic import ValidationError

from mcp_server.serve.server import repaired


def received(line: str) -> SessionMessage | Exception:
    """What the SDK makes of a line, repaired."""
    try:
        return repaired(SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False)))
    except ValidationError as error:
        return repaired(error)


@given(st.text(st.characters(codec=None)))
def test_any_text_that_a_client_can_hold_arrives_and_only_half_characters_are_replaced(text: str) -> None:
    line = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"text": text}})
    item = received(line)
    assert isinstance(item, SessionMessage)
    assert isinstance(item.message, JSONRPCRequest)
    assert item.message.id == 7
    joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert (item.message.params or {})["text"].replace("\ufffd", "") == joined.replace("\ufffd", "")


@pytest.mark.parametrize("text", ["\\ud800", "\\\\ud800", "\\\\\\ud800 and \\ud83d\\ude00"])
def test_a_backslash_before_is_no_escape_of_ours(text: str) -> None:
    item = received(f'{{"jsonrpc": "2.0", "id": 7, "method": "x", "params": {{"text": "{text}", "more": "\\udfff"}}}}')
    assert isinstance(item, SessionMessage)
    assert isinstance(item.message, JSONRPCRequest)
    wanted = json.loads(f'"{text}"').encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert item.message.params == {"text": wanted, "more": "\ufffd"}


@pytest.mark.parametrize("line", ["", "not json \ud800", '{"jsonrpc": "2.0", "id": "\\ud800', '["\\ud800"]'])
def test_what_is_no_message_stays_an_error(line: str) -> None:
    assert isinstance(received(line), Exception)
