"""What holds for every compilation whatever. CM_EXAMPLES=10000 asks for as many random states."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcp_server.context.compiler import Compiled, compile_inputs
from mcp_server.context.inputs import CompileInputs, differing_fields
from tests.context.states import HOSTILE, candidate, inputs, knowledge, passage, state, tokens, turn

EXAMPLES = settings(max_examples=int(os.environ.get("CM_EXAMPLES", "10")))

seeds = st.integers(0, 2**48)

MARKERS = re.compile(
    r"<system-reminder|<checkpoint-data|</?command-|\[/?INST\]|<\|im_|^[ \t]*(?:Human|Assistant|System):", re.MULTILINE
)
UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
LABEL = re.compile(r"^<!-- [a-z ]+: [^>]* -->$", re.MULTILINE)


@EXAMPLES
@given(seeds)
def test_a_context_holds_its_budget_accounts_for_every_token_and_no_stored_text_passes_for_the_host(seed: int) -> None:
    given_now = state(seed)
    compiled = compile_inputs(given_now, tokens().count)
    text, receipt = compiled.text, compiled.receipt
    assert len(tokens()._encoding().encode_ordinary(text)) == compiled.tokens <= compiled.inputs.budget
    assert compiled.tokens == receipt.tokens == tokens().count(text)
    assert sum(slot.tokens for slot in receipt.slots) + receipt.separators == receipt.tokens
    assert len(receipt.considered) <= 200
    assert receipt.too_small == (compiled.inputs.budget < 128)
    assert not MARKERS.search(text)
    assert not UNSAFE.search(text)
    assert text.count("<!--") == len(LABEL.findall(text))
    (checkpoint,) = [slot for slot in receipt.slots if slot.name == "checkpoint"]
    assert checkpoint.tokens <= 0.5 * compiled.inputs.budget
    stored = CompileInputs.from_json(json.loads(json.dumps(given_now.to_json())))
    assert stored == given_now
    assert compile_inputs(stored, tokens().count) == compiled, "the same inputs give the same bytes"


@EXAMPLES
@given(seeds)
def test_what_is_out_is_named_with_its_reason_and_changes_nothing_else(seed: int) -> None:
    made, chance = state(seed), Random(seed)
    marked = tuple(replace(one, out="not for this" if chance.random() < 0.4 else "") for one in made.hits)
    with_them = compile_inputs(replace(made, hits=marked), tokens().count)
    without = compile_inputs(replace(made, hits=tuple(one for one in marked if not one.out)), tokens().count)
    assert with_them.text == without.text
    assert with_them.receipt.slots == without.receipt.slots
    out = Counter({"not for this": sum(bool(one.out) for one in marked)})
    assert _reasons(with_them) == _reasons(without) + out


def _reasons(compiled: Compiled) -> Counter[str]:
    return Counter(one.reason for one in compiled.receipt.considered) + Counter(compiled.receipt.left_out)


@EXAMPLES
@given(seeds, seeds)
def test_two_states_that_differ_name_the_field(one: int, other: int) -> None:
    a, b = state(one), state(other)
    assert bool(differing_fields(a.digests(), b.digests())) == (a != b)


@EXAMPLES
@given(seeds, st.integers(1, 200))
@example(210, 200)  # here the whole text has more tokens than its parts, which few states have
def test_a_counter_for_which_parts_do_not_add_up_is_obeyed_too(seed: int, most: int) -> None:
    def count(text: str) -> int:
        return len(text) // 3 + text.count("\n\n") * 5 + 1 if text else 0

    compiled = compile_inputs(replace(state(seed), budget=most), count)
    assert count(compiled.text) <= most


@given(st.text())
def test_a_field_that_this_version_does_not_know_survives(value: str) -> None:
    stored = {**inputs().to_json(), "of_tomorrow": {"value": value}}
    assert CompileInputs.from_json(stored).to_json() == stored


def test_every_hostile_text_in_every_place_is_harmless() -> None:
    for hostile in HOSTILE:
        said = f"Ana lives {hostile} in Novi Sad."
        made = inputs(
            said,
            delivery="replace",
            session="ses_now",
            hits=(
                candidate(passage(said, title=hostile, speaker=hostile)),
                candidate(knowledge(said, path=f"knowledge/people/{hostile}.md", title=hostile, start=90)),
                candidate(passage("I am called that.", speaker="System", start=20)),
            ),
            turns=(turn(1, "user", hostile), turn(2, "agent", hostile, name="Assistant"), turn(3, "system", hostile)),
        )
        text = compile_inputs(made, tokens().count).text
        assert not MARKERS.search(text), hostile
        assert not UNSAFE.search(text), hostile
        assert text.count("<!--") == 2, hostile


def test_another_process_gives_the_same_bytes() -> None:
    script = (
        "from tests.context.states import *\n"
        "from mcp_server.context.compiler import compile_inputs\n"
        "hits = tuple(candidate(passage(WORDS * n, start=10 * n), 1 / n) for n in range(1, 30))\n"
        "c = compile_inputs(inputs(WORDS, 700, hits=hits), tokens().count)\n"
        "print(c.sha256, [one.reason for one in c.receipt.considered])"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=root,
        env={**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(root)},  # this process has another seed
        capture_output=True,
        text=True,
        check=True,
    )
    with redirect_stdout(StringIO()) as here:
        exec(script, {})
    assert done.stdout == here.getvalue() != ""
