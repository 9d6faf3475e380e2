"""Compile inputs: stored, versioned, compared."""

from __future__ import annotations

from dataclasses import replace

from mcp_server.context.inputs import CompileInputs, CompilerSettings, differing_fields
from tests.context.states import candidate, inputs, passage, turn


def test_a_changed_budget_and_message_are_named() -> None:
    one, other = inputs("a", 1000), inputs("b", 2000)
    assert differing_fields(one.digests(), other.digests()) == ("budget", "message")


def test_the_order_of_a_hits_terms_is_no_difference() -> None:
    first, second = candidate(passage("x")), candidate(passage("x"))
    first = replace(first, hit=replace(first.hit, terms={"a": 1.0, "b": 2.0}))
    second = replace(second, hit=replace(second.hit, terms={"b": 2.0, "a": 1.0}))
    assert differing_fields(inputs(hits=(first,)).digests(), inputs(hits=(second,)).digests()) == ()


def test_inputs_that_an_older_version_stored_take_the_defaults_of_new_fields() -> None:
    stored = inputs(turns=(turn(1),)).to_json()
    del stored["drop_list"], stored["settings"], stored["turns"][0]["redacted"]
    read = CompileInputs.from_json(stored)
    assert (read.drop_list, read.settings, read.turns[0]) == ((), CompilerSettings(), turn(1))


def test_what_a_newer_version_says_of_a_turn_does_not_disturb() -> None:
    stored = inputs(turns=(turn(1),)).to_json()
    stored["turns"][0]["mood"] = "fine"
    assert CompileInputs.from_json(stored).turns == (turn(1),)
