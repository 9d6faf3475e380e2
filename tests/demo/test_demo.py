"""The demo is the main job, with a real server and a real client."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from tests.clients.importers import data
from tests.preloaded import context_manager
from tests.running import printed


def run(*arguments: str, cwd: Path) -> str:
    return printed(context_manager(*arguments), cwd=cwd, env=os.environ | {"COLUMNS": "120"})


def words(svg: str) -> list[str]:
    """Returns the words that a picture shows."""
    return re.sub(r"<style>.*?</style>|<[^>]*>", " ", svg, flags=re.DOTALL).split()


def test_the_demo_goes_from_nothing_to_an_explained_context(tmp_path: Path) -> None:
    text = run("demo", "--svg", "picture.svg", cwd=tmp_path)
    assert "60 turns imported" in text
    assert "session: " in text
    assert "allerg" in text
    assert "gate" in text
    assert "gave the same bytes" in text
    assert "sha256" in text
    assert [path.name for path in tmp_path.iterdir()] == ["picture.svg"]
    committed = (Path(__file__).parents[2] / "docs" / "demo.svg").read_text("utf-8")
    drawn = (tmp_path / "picture.svg").read_text("utf-8")
    assert words(drawn) == words(committed), "renew it: context-manager demo --svg docs/demo.svg"
    assert "hazelnut" in committed
    assert "@font-face" not in drawn, "a page that shows the picture would load a font from another host"


def test_the_demo_takes_a_conversation_of_ones_own_and_keeps_the_memory_where_told(tmp_path: Path) -> None:
    (tmp_path / "talk.json").write_text(json.dumps(data.chats()), encoding="utf-8")
    kept = tmp_path / "kept"
    steps = json.loads(
        run("--workspace", str(kept), "demo", "talk.json", "--ask", "What about the kayak?", "--json", cwd=tmp_path)
    )
    assert steps[-1]["receipt"]["tokens"] > 0
    assert any("kayak" in step["text"] for step in steps)
    assert (kept / "raw" / "conversations").is_dir()


def test_the_conversation_that_ships_is_a_real_one() -> None:
    from importlib.resources import files

    chats = json.loads((files("mcp_server.demo") / "conversation.json").read_text(encoding="utf-8"))
    messages = [message for chat in chats for message in chat["chat_messages"]]
    assert len(chats) >= 4
    assert len(messages) >= 60
    assert [message["uuid"] for message in messages] == [str(number) for number in range(len(messages))]
