"""Over stdio with real processes: a message activates a topic, and its playbook is in the resource."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.servers import done, eventually, served
from tests.serving import call, resource, say
from tests.topics.playbooks import EMAIL

pytestmark = pytest.mark.anyio

REVIEW = """\
---
type: topic
triggers:
  - {type: pattern, match: '\\b(?:PR|pull request|review)\\b'}
subscriptions: [knowledge/procedures/code-review.md, knowledge/projects/_active.md]
activation: gated
priority: high
---

# GitHub PR review

Review a pull request (PR) that came in: read the diff, run the tests, comment on what must change.
"""

PYTHON = """\
---
type: topic
triggers:
  - type: pattern
    match: 'print ["'']'
    scope: output
    correction_hint: Use Python 3 syntax
---

# Code quality

Code is Python 3.12 with type hints.
"""


def write(root: Path, path: str, text: str) -> None:
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, encoding="utf-8")


def without_examples(root: Path) -> None:
    for example in (root / "topics").glob("*.md"):
        example.unlink()


async def test_a_new_email_brings_the_triage_and_what_it_subscribes_to(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    async with served(root) as server:
        session = await say(server.client, "Good morning")
        without_examples(root)
        write(root, "topics/email-triage.md", EMAIL)
        write(root, "knowledge/procedures/email-workflow.md", "# Email workflow\n\nAnswer customers within a day.\n")
        before = await resource(server.client, f"context://compiled/{session}")
        answer = await call(
            server.client, "observe", role="user", content="A new email arrived, is it urgent or spam?", session=session
        )
        compiled = await resource(server.client, f"context://compiled/{session}")
        receipt = await resource(server.client, f"context://receipt/{session}")
    assert "Email Triage" not in before
    assert "topics now active: email-triage (pattern “email”)" in answer
    assert "1. Classify: urgent / actionable / informational / spam" in compiled
    assert "Answer customers within a day." in compiled
    assert "- topics/email-triage.md:18-" in receipt
    assert "active: pattern “email”" in receipt
    assert "subscription of email-triage" in receipt


async def test_python_2_in_an_answer_is_corrected_until_the_agent_speaks_again(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    async with served(root) as server:
        session = await say(server.client, "How do I say hello?")
        without_examples(root)
        write(root, "topics/code-quality.md", PYTHON)
        uri = f"context://compiled/{session}"
        answer = await call(
            server.client, "observe", role="agent", content='```python\nprint "hello"\n```', session=session
        )
        assert "correction (code-quality): Use Python 3 syntax" in answer
        for _ in range(2):
            assert "- Use Python 3 syntax (code-quality)" in await resource(server.client, uri)
        await say(server.client, "Now with a name", session=session)
        compiled = await resource(server.client, uri)
        assert "- Use Python 3 syntax (code-quality)" in compiled
        assert "Code is Python 3.12 with type hints." in compiled
        await say(server.client, '```python\nprint(f"hello {name}")\n```', "agent", session=session)
        assert "Use Python 3 syntax" not in await resource(server.client, uri)


async def test_a_killed_server_forgets_no_topic_and_another_process_switches_it(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    async with served(root) as server:
        session = await say(server.client, "Good morning")
        without_examples(root)
        write(root, "topics/email-triage.md", EMAIL.replace("gated ", "auto "))
        await say(server.client, "an email came", session=session)
        server.kill()
    async with served(root) as server:
        uri = f"context://compiled/{session}"
        assert "Email Triage" in await resource(server.client, uri)
        assert "stays out" in await done(root, "topics", "deactivate", "email-triage", "--session", session)

        async def gone() -> bool:
            return "Email Triage" not in await resource(server.client, uri)

        await eventually(gone)
