"""Which item replaces or closes which."""

from __future__ import annotations

from datetime import timedelta

import pytest

from mcp_server.understanding import settling
from mcp_server.understanding.model import recognizer
from mcp_server.understanding.recognizer import read
from mcp_server.understanding.settling import Statement, same, settle, settled_in
from tests.understanding.talks import BERTH, BERTH_DONE, START, talk

DOCS, TESTS = "we still need to write docs for the parser", "and someone has to write tests for the parser"


def settled(*said: str) -> dict[str, str]:
    found = [
        Statement(item.kind, item.text, (item.at, "", item.turn), item.changes)
        for item in read(talk(*said), recognizer())
    ]
    settle(found)
    return {one.text: one.state for one in found if one.kind != "report"}


def test_a_report_in_other_words_closes_an_open_item() -> None:
    said = (BERTH, "OK, I'll keep that in mind.", "how does the export work?", "It writes a CSV file.")
    assert settled(*said) == {BERTH: "current"}
    assert settled(*said, BERTH_DONE, "Good to hear.")[BERTH] == "closed"


@pytest.mark.parametrize(
    ("item", "asked", "answer"),
    [
        ("TODO: renew the TLS certificate of the staging server.", "restart the staging server", "It is up again."),
        ("I still need to ask Hannah whether chapter 5 may be longer.", "shorten chapter 5 by a third", "Done."),
        ("We still don't know why the nightly import is slow.", "add a progress bar to the import", "Added with tqdm."),
        ("Someone has to fix the broken link on the pricing page.", "make the pricing page narrower", "Done."),
        ("I still owe Marta the review of her chapter.", "translate chapter two into French", "Translated, 9 pages."),
    ],
)
def test_a_request_with_a_word_of_an_open_item_does_not_close_it(item: str, asked: str, answer: str) -> None:
    assert list(settled(item, "Okay, noted.", asked, answer).values()) == ["current"]


def test_of_two_open_items_with_most_words_in_common_only_the_done_one_is_closed() -> None:
    said = (DOCS, "ok", TESTS, "Noted.", "what does the lexer return?", "A list of tokens.")
    assert settled(*said) == {DOCS: "current", TESTS: "current"}
    done = "the parser has its docs now, I wrote them on the train"
    assert settled(*said, done, "Good to hear.") == {DOCS: "closed", TESTS: "current"}
    assert settled(*said, "- [x] write tests for the parser", "Great.") == {DOCS: "current", TESTS: "closed"}


def test_a_decision_that_takes_another_back_replaces_it_and_others_stay() -> None:
    said = (
        "where do secrets live?",
        "I'd keep them in Vault with the AppRole login, one role per service.",
        "yes please",
        "Done.",
        "Let's use Postgres 16 for the billing service instead of MySQL.",
        "OK.",
        "change of plan: no AppRole login in Vault after all, we use the JWT login instead",
        "OK, Vault uses JWT login now.",
    )
    states = settled(*said)
    assert states.pop("I'd keep them in Vault with the AppRole login, one role per service.") == "replaced"
    assert set(states.values()) == {"current"}
    assert len(states) == 2


def test_two_changes_of_different_things_leave_each_other_in_force() -> None:
    old, new = (
        Statement("decision", text, (START + timedelta(days=day), "", 1), 0.9)
        for day, text in enumerate(
            (
                "Declan swapped the radio: it's now the SX1262 instead of the RFM95, because of RX current 4.6 mA",
                "The antennas come from Farnell instead of Mouser.",
            )
        )
    )
    settle([old, new])
    assert old.state == "current"


def test_an_item_that_was_said_twice_is_closed_as_one() -> None:
    one, other = (
        Statement("open", text, (START, "", turn))
        for turn, text in enumerate(("send Grigorije a plan", "send a plan to Grigorije"))
    )
    assert same(one, other)
    settle([one, other, Statement("report", "sent the plan to Grigorije", (START, "", 9))])
    assert (one.state, other.state) == ("closed", "closed")


def test_decisions_that_were_weighed_before_are_not_weighed_again() -> None:
    old, new = (
        Statement("decision", text, (START, "", turn), 0.9, is_new=False)
        for turn, text in enumerate(("Vault with AppRole login", "Vault with JWT login, no AppRole"))
    )
    settle([old, new])
    assert (old.state, new.state) == ("current", "current")
    new.is_new = True
    settle([old, new])
    assert old.state == "replaced"


def test_a_new_value_of_a_fact_replaces_the_old_one_and_other_facts_stay() -> None:
    old, other, new = (
        Statement("fact", text, (START + timedelta(days=day), "", 1))
        for day, text in enumerate(
            (
                "The kiln in the yard fires stoneware at 1240 degrees.",
                "The kiln in the yard takes 40 mugs in one load.",
                "The kiln in the yard fires stoneware at 1210 degrees now.",
            )
        )
    )
    settle([old, other, new])
    assert (old.state, old.by) == ("replaced", new)
    assert other.state == new.state == "current"


def test_a_statement_that_says_more_than_what_changes_stays_and_is_perhaps_changed() -> None:
    builder = (
        "We take Bell & Sons for the extension, £134k at a fixed price with two clinics as references, a penalty for "
        "each late day and Marek as the foreman, the old boiler stays, and they start on 6 July."
    )
    old, new = (
        Statement("decision", text, (START + timedelta(days=day), "", 1), changes)
        for day, text, changes in (
            (0, builder, 0.0),
            (1, "Bell & Sons start the extension on 20 July now instead of 6 July.", 0.9),
        )
    )
    settle([old, new])
    assert (old.state, old.by) == ("changed", new)


def test_two_facts_about_one_thing_without_a_sign_of_change_both_stay() -> None:
    one, other = (
        Statement("fact", text, (START + timedelta(days=day), "", 1))
        for day, text in enumerate(
            (
                "The kiln in the yard fires stoneware at 1240 degrees.",
                "The kiln in the yard takes 40 mugs in one load.",
            )
        )
    )
    settle([one, other])
    assert one.state == "current"


def test_each_sentence_of_a_report_can_close_an_item() -> None:
    logo = Statement("open", "The logo is missing as a vector file.", (START, "", 1))
    lease = Statement("open", "Mrs Berg still has to sign the lease of the boathouse.", (START, "", 3))
    said = "Sanne sent the logo as a vector file. Mrs Berg signed the lease of the boathouse on Friday."
    settle([logo, lease, Statement("report", said, (START + timedelta(days=1), "", 9), 0.9)])
    assert (logo.state, lease.state) == ("closed", "closed")


def test_a_fact_beside_a_report_can_close_an_item() -> None:
    item = Statement("open", "Which account the deposits go to, I don't know.", (START, "", 1))
    later = START + timedelta(days=1)
    fact = Statement("fact", "The deposits go to the association's account at the Sparkasse.", (later, "", 9))
    told = Statement("report", "Florian has answered at last.", (later, "", 9), 0.6)
    settle([item, told])
    assert item.state == "current"
    settle([item, fact, told])
    assert (item.state, item.by) == ("closed", told)


def test_the_turn_of_the_answer_settles_a_decision_that_quotes_it() -> None:
    assert settled_in(4, "Use SQLite for the ledger. (agreed: fine, SQLite)") == 5
    assert settled_in(4, "Use SQLite for the ledger.") == 4


def test_no_report_closes_an_item_of_its_own_message() -> None:
    item = Statement("open", "somebody must write a runbook page for the spool", (START, "", 1))
    settle([item, Statement("report", "the runbook page for the spool is half done", (START, "", 1), 0.9)])
    assert item.state == "current"


def test_what_is_said_long_after_about_something_else_closes_nothing() -> None:
    texts = (
        "capsule images must still go to Steamworks, three sizes",
        "the village still needs a name before the demo goes out in June",
    )
    items = [Statement("open", text, (START, "", turn)) for turn, text in enumerate(texts)]
    trips = [f"stop {number} of the trip was a bakery near the harbor" for number in range(60)]
    told = [Statement("fact", text, (START + timedelta(days=3), "", 10 + turn)) for turn, text in enumerate(trips)]
    reports = (
        "Mira sent her images of the coast to a small gallery in the old town on Sunday and they liked them a lot",
        "my sister and her husband finally found a name for the baby after three weeks of quarrels with both families",
    )
    later = [
        Statement("report", text, (START + timedelta(days=9), "", 90 + turn), 0.05) for turn, text in enumerate(reports)
    ]
    settle([*items, *told, *later])
    assert [item.state for item in items] == ["current", "current"]


def test_a_report_about_an_item_closes_it_however_long_after() -> None:
    item = Statement("open", "capsule images must still go to Steamworks, three sizes", (START, "", 1))
    trips = [f"stop {number} of the trip was a bakery near the harbor" for number in range(60)]
    told = [Statement("fact", text, (START + timedelta(days=3), "", 10 + turn)) for turn, text in enumerate(trips)]
    uploaded = "the capsule images are on Steamworks, all sizes"
    settle([item, *told, Statement("report", uploaded, (START + timedelta(days=9), "", 90), 0.7)])
    assert item.state == "closed"


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("decision", "we deploy every friday", "Deploys happen on Tuesdays."),
        ("rule", "Call me Sam.", "Call me Alex."),
        ("fact", "The spring campaign has 12,000 euros.", "finance cut us down: 9,500 euros for the spring campaign"),
    ],
)
def test_a_short_statement_replaces_another_without_a_word_of_change(kind: str, old: str, new: str) -> None:
    others = ("The office plants get water on Mondays.", "Invoices have two decimals.", "The logo stays blue.")
    said = [
        Statement(kind, text, (START + timedelta(days=day), "", 1), 0.02)
        for day, text in enumerate((old, *others, new))
    ]
    settle(said)
    assert [one.state for one in said] == ["replaced", *["current"] * 4]
    assert said[0].by is said[-1]


def test_the_word_agreed_is_no_word_that_two_decisions_share() -> None:
    one, other = (
        Statement("decision", f"{text} (agreed: ok)", (START + timedelta(days=day), "", 1))
        for day, text in enumerate(("Number the episodes.", "Put ads at the start."))
    )
    settle([one, other])
    assert one.stems.isdisjoint(other.stems)
    assert one.state == "current"


def test_statements_in_another_language_are_judged_by_their_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "pair", lambda *_: pytest.fail("the network knows English only"))
    old, other, new = (
        Statement("decision", text, (START + timedelta(days=day), "", 1), 0.9)
        for day, text in enumerate(
            (
                "Wir werden die Rechnungen jeden Freitag mit der alten Druckerei verschicken.",
                "Anna malt über Ostern das Boot ihrer Schwester an, und zwar blau.",
                "Wir werden die Rechnungen nicht mehr jeden Freitag mit der alten Druckerei verschicken.",
            )
        )
    )
    settle([old, other, new])
    assert (old.state, other.state) == ("replaced", "current")
