"""Which option of a list a short answer chooses."""

from __future__ import annotations

import pytest

from mcp_server.understanding.features import Message
from mcp_server.understanding.sentences import answers_by_number, only_options, sentences
from tests.understanding.talks import items, texts


def test_headings_with_letters_are_options_and_the_numbered_steps_below_them_are_not() -> None:
    message = (
        "### A. Same cluster\n- one backup\n\n### B. Own instance\n- $62 a month\n\nMoving:\n\n1. Create it\n2. Copy"
    )
    assert {one.text: one.option for one in sentences(message)} == {
        "A. Same cluster": 1,
        "one backup": 1,
        "B. Own instance": 2,
        "$62 a month": 2,
        "Moving:": 0,
        "Create it": 0,
        "Copy": 0,
    }


@pytest.mark.parametrize("answer", ["I would not miss it. 2.", "ok, phew. then 2. thanks!", "Hm. B!"])
def test_a_sentence_that_only_names_an_option_chooses_it(answer: str) -> None:
    assert Message("user", answer).choice.options == (2,)


@pytest.mark.parametrize(
    ("answer", "options"),
    [
        ("a, because the manual is German", (1,)),
        ("a.", (1,)),
        ("a table with three columns, please", ()),
        ("a. Not c. Never c", (1,)),
        ("b and c, both", (2, 3)),
        ("b, c, e and f. The others come later.", (2, 3, 5, 6)),
        ("1 and 2 for sure!!", (1, 2)),
        ("1 to 4 are fine. But the filter stays!", (1, 2, 3, 4)),
        ("One, three, four. Number 2 I can't.", (1, 3, 4)),
        ("1 today, 2 next", ()),
        ("D. but a button, hold 3 s", (4,)),
        ("B. C is how money leaks.", (2,)),
        ("c never. b sounds good for the money", (2,)),
        ("C is out of the question. A if it cost nothing. So B it is, and add the report.", (2,)),
        ("Then b, I think, the third sounds like the lavatory at the motorway services.", (2,)),
        ("then a table, please", ()),
        ("then 3 weeks, not more", ()),
        ("c no", ()),
        ("c, no objections", (3,)),
    ],
)
def test_an_answer_chooses_one_or_several_options(answer: str, options: tuple[int, ...]) -> None:
    assert Message("user", answer).choice.options == options


@pytest.mark.parametrize(
    ("answer", "options"),
    [
        ("a obviously", (1,)),
        ("a table please", ()),
        ("I lean, as so often, towards b; and keep the curtains.", (2,)),
        ("I discussed it with Marguerite. B, and she drafts the agreement.", (2,)),
        ("That is not b, is it", ()),
        ("What would b cost?", ()),
        ("I'd keep A and add B later", ()),
    ],
)
def test_after_a_list_a_single_letter_among_the_first_words_chooses(answer: str, options: tuple[int, ...]) -> None:
    asked = Message("agent", "Ways:\n\na) by mail\nb) by upload")
    assert Message("user", answer, previous=asked).choice.options == options


@pytest.mark.parametrize(
    ("line", "chosen"),
    [
        ("Rate limit: 1) in Fastify 2) in Caddy 3) not at all until somebody abuses it.", "Rate limit: in Caddy."),
        ("The machine: (a) the old iMac, (b) a Chromebook, (c) your own PC.", "The machine: a Chromebook."),
        ("Free are: a, shop.com for 15 a year; b, shop.rs for 19.", "Free are: shop.rs for 19."),
        ("Vitamin A, b and so on.", "Vitamin A, b and so on."),
    ],
)
def test_of_a_sentence_that_lists_options_only_the_chosen_one_is_quoted(line: str, chosen: str) -> None:
    assert only_options(line, [2]) == chosen


STORES = "Three options:\n\n- **A** SQLite in one file\n- **B** append-only JSONL\n- **C** memory only"
SIGN = (
    "There are two good routes: a) white letters on dark teal, which is your logo, or b) brass letters directly on the "
    "brick, which looks expensive and costs 640 more."
)
FIGURES = (
    "1. Map of the sites\n2. Curves with the data\n\nI see three ways: a) all in the main text, b) the map in the "
    "supplement, c) only the curves in the main text."
)


@pytest.mark.parametrize(
    ("asked", "answer", "told"),
    [
        (STORES, "A", "SQLite in one file"),
        (STORES, "A but on the usb stick", "SQLite in one file (agreed: A but on the usb stick)"),
        (
            SIGN,
            "a, obviously, we're not a bank",
            "dark teal, which is your logo. (agreed: a, obviously, we're not a bank)",
        ),
        (f"{STORES}\n\nBefore choosing I would time one of them on the machine.", "A", "SQLite in one file"),
        (FIGURES, "b, nobody needs another map", "the map in the supplement. (agreed: b, nobody needs another map)"),
    ],
)
def test_an_option_with_a_letter_is_told_without_the_other_ones(asked: str, answer: str, told: str) -> None:
    (decision,) = texts("decision", "How should we do it?", asked, answer, "Done.")
    assert decision.endswith(told)
    assert not any(other in decision for other in ("JSONL", "memory only", "brass", "all in the main", "only the"))


def test_options_of_one_line_may_be_sentences() -> None:
    found = sentences("Controls. 1: arrows only. 2: mouse, the moth follows the pointer. 3: both.")
    assert [(one.option, one.text) for one in found] == [
        (0, "Controls."),
        (1, "arrows only."),
        (2, "mouse, the moth follows the pointer."),
        (3, "both."),
    ]


@pytest.mark.parametrize(
    ("answer", "chosen"),
    [
        ("the second, please", "CC BY"),
        ("the last one", "All rights"),
        ("first one then", "CC0"),
        ("yeah 2nd one", "CC BY"),
        ("the middle one", "CC BY"),
    ],
)
def test_a_point_of_a_list_without_numbers_is_chosen_by_its_order(answer: str, chosen: str) -> None:
    (decision,) = items(
        "Which license should the photos of the objects have?",
        "I'd choose one of these for the photos:\n\n- CC0: anyone can use them\n- CC BY: reuse of the photos with "
        "credit\n- All rights reserved: nobody can share the photos",
        answer,
    )
    named = [name for name in ("CC0", "CC BY", "All rights") if name in decision.text]
    assert named == [chosen]


PAYMENT = {
    "list": "- Stripe: good documentation, a test mode\n- Adyen: cheaper for large amounts\n- Mollie: weak on disputes",
    "table": "| provider | weakness |\n|---|---|\n| Stripe | price |\n| Adyen | setup |\n| Mollie | disputes |",
}


@pytest.mark.parametrize("options", PAYMENT.values(), ids=PAYMENT)
def test_an_option_is_chosen_by_its_name(options: str) -> None:
    asked = f"Three providers could do it for the shop:\n\n{options}\n\nWhich provider should the shop take?"
    found = items("Who handles the payments of the shop?", asked, "mollie then, we have no disputes")
    (decision,) = [one for one in found if one.kind == "decision"]
    assert [name for name in ("stripe", "adyen", "mollie") if name in decision.text.lower()] == ["mollie"]


def test_naming_a_point_of_a_plan_does_not_reject_the_others() -> None:
    plan = (
        "I'd set up the monitoring like this:\n\n- Loki for the logs, kept for 30 days\n- Grafana with the login of "
        "the office\n- Alerts go to the existing mailbox\n\nShall I?"
    )
    (decision,) = texts("decision", "and monitoring?", plan, "yes, but logs 14 days")
    assert all(name in decision for name in ("Loki", "Grafana", "Alerts", "logs 14 days"))


def test_a_time_in_an_answer_is_no_further_option() -> None:
    asked = Message("agent", "Ways:\n\n1. by webhook\n2. by polling\n3. by cron")
    assert Message("user", "2 but stop at 06:30, finance starts at 7", previous=asked).choice.options == (2,)


TOLD = (
    "I see three ways to hold the readings. The first is pandas, which everyone knows. The second is polars. It is "
    "stricter about types. The third is plain numpy. I lean towards polars, because strictness is what you miss.",
    "Understood.\n\nNumber one, pandas, which everyone knows.\n\nNumber two, polars. It is stricter about types.\n\n"
    "Number three, plain numpy.\n\nI lean towards polars, because strictness is what you miss.",
)


@pytest.mark.parametrize("told", TOLD)
@pytest.mark.parametrize("answer", ["The second one.", "2", "Option two, please."])
def test_options_that_are_told_in_sentences_are_chosen_by_number(told: str, answer: str) -> None:
    assert [one.option for one in sentences(told)] == [0, 1, 2, 2, 3, 0]
    (line,) = texts("decision", "How do we hold the readings?", told, answer, "Noted.")
    assert "polars" in line
    assert "stricter" in line
    assert "pandas" not in line
    assert "numpy" not in line


def test_options_with_bold_number_words_are_told_without_the_other_ones() -> None:
    asked = (
        "Three ways to write the dialogues:\n\n**one**: Dialogue Manager addon, text files, branching\n"
        "**two**: own JSON plus a small parser, ~200 lines\n**three**: Ink with a C# bridge, needs the .NET build"
    )
    (line,) = [item.text for item in items("How do we do the dialogues?", asked, "one obvi") if item.kind == "decision"]
    assert "Dialogue Manager addon" in line
    assert "JSON" not in line
    assert "Ink" not in line


def test_the_mark_of_an_option_that_is_told_is_no_part_of_it() -> None:
    told = "Three would work. One, Twilio. Two: OVH, about five cents. It is slow. Option three: Brevo. I'd take OVH."
    assert [(one.option, one.text) for one in sentences(told)] == [
        (0, "Three would work."),
        (1, "Twilio."),
        (2, "OVH, about five cents."),
        (2, "It is slow."),
        (3, "Brevo."),
        (0, "I'd take OVH."),
    ]


def test_options_that_are_told_by_letter_are_chosen_by_letter() -> None:
    told = (
        "There are two ways to keep the readings. Possibility A is a file for each day. Possibility B is a table in "
        "PostgreSQL, with a row for each reading. I'd take B, because it is easy to search."
    )
    assert [one.option for one in sentences(told)] == [0, 1, 2, 0]
    (line,) = [item.text for item in items(told, "B, please.") if item.kind == "decision"]
    assert "a row for each reading" in line
    assert "a file for each day" not in line


def test_one_ordinal_number_tells_no_options() -> None:
    assert not any(one.option for one in sentences("First, the backup. Then the rest of what was on the list."))


def test_an_option_is_chosen_by_its_number_as_a_word() -> None:
    assert Message("user", "Number one. People in this valley have radios.").choice.options == (1,)


def test_a_short_answer_is_quoted_before_the_sentence_that_adds_something() -> None:
    proposal = "I'd empty the old coal cellar, which is dry and has a ramp, and put the bicycles there."
    added = "But keep the ramp free for the handcarts."
    answer = f"Splendid. {added} I have had three meetings since nine and no coffee, and it is only ten."
    (decision,) = texts("decision", "Where do the bicycles go?", proposal, answer, "Noted.")
    assert decision.startswith(f"{proposal} (")
    assert f": Splendid. {added}" in decision


POINTS = (
    "1. The readings of the wells are resampled to hourly medians.\n2. Readings before March are discarded.\n"
    "3. All gaps are filled by linear interpolation.\n4. Which format should the report have?"
)


@pytest.mark.parametrize(
    "answer",
    [
        "1 yes. 2 only for well B7. 3 no, gaps of a day stay gaps. 4 PDF/A, for the archive.",
        "1 yes, 2 only for well B7, 3 no, gaps of a day stay gaps, 4 PDF/A, for the archive",
        "1) yes\n2) only for well B7.\n3) no, gaps of a day stay gaps.\n4) PDF/A, for the archive.",
    ],
)
def test_points_that_are_answered_by_number_are_quoted_each_with_its_answer(answer: str) -> None:
    said = ("How would you prepare the readings of the wells?", POINTS, answer, "I prepare them like that.")
    told = "\n".join(texts("decision", *said)).replace("gaps. (", "gaps (")
    assert "Readings before March are discarded. (answer: only for well B7" in told
    assert "no, gaps of a day stay gaps (refused: All gaps are filled by linear interpolation" in told
    assert any("report have? (answer: PDF/A, for the archive" in one.text for one in items(*said))


@pytest.mark.parametrize(
    "answer", ["3 weeks, not more", "1 and 2 as one piece. 3 is for the club.", "Fine. 1 yes. 2 no."]
)
def test_a_number_that_begins_an_answer_may_mean_something_else(answer: str) -> None:
    parts = answers_by_number(sentences(answer), sentences(POINTS))
    assert parts == []


def test_the_mark_of_an_option_in_bold_and_a_table_that_compares_the_options_are_not_quoted() -> None:
    asked = (
        "Ways to store the tickets:\n\n**a) One file.** Simple, but slow.\n**b) SQLite with an index.** One file, too, "
        "and fast to search.\n\n| | setup | search |\n|---|---|---|\n| a | 1 h | slow |\n| b | half a day | fast |"
    )
    (decision,) = texts("decision", "How do we store the tickets?", asked, "b, with a nightly copy", "Done.")
    assert "SQLite with an index. One file, too, and fast to search. (" in decision
    assert "half a day" not in decision


@pytest.mark.parametrize("said", ["36. they load in the evening", "14. no, and not for the old ones either"])
def test_a_number_that_counts_no_points_belongs_to_the_answer(said: str) -> None:
    (one,) = sentences(said)
    assert (one.text, one.layout) == (said, "paragraph")
    points = "\n".join(f"{number}. they load on day {number}" for number in range(9, 13))
    assert [one.text for one in sentences(points)] == [f"they load on day {number}" for number in range(9, 13)]
