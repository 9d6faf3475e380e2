"""Which messages only ask to go on with what was done before."""

from __future__ import annotations

import pytest

from mcp_server.context.window_text import asks_to_go_on


@pytest.mark.parametrize(
    "message",
    [
        "continue",
        "Continue, please!",
        "ok, let's continue where we left off",
        "Where were we?",
        "What did we do last time?",
        "what was I working on yesterday?",
        "pick up where we left off",
        "resume the work on this project",
        "Gde smo stali?",
        "nastavi",
        "Wo waren wir?",
        "Good morning. Where were we?",
    ],
)
def test_it_does(message: str) -> None:
    assert asks_to_go_on(message)


@pytest.mark.parametrize(
    "message",
    [
        "",
        "ok, thanks",
        "yes",
        "👍",
        "/resume",
        "!continue",
        "# continue",
        "<command-name>continue</command-name>",
        "continue with the invoices",
        "good morning",
        "what did we decide last time about the mooring?",
        "Which port does the staging database listen on?",
        "does the for loop need a continue statement?",
        "write a haiku about autumn leaves",
        "continue " * 40,
    ],
)
def test_it_does_not(message: str) -> None:
    assert not asks_to_go_on(message)


def test_the_name_of_the_project_is_no_subject_in_it() -> None:
    assert asks_to_go_on("Where were we with harbor?", "harbor")
    assert asks_to_go_on("let's continue with the harbor-api", "harbor-api")
    assert not asks_to_go_on("Where were we with harbor?", "lantern")
