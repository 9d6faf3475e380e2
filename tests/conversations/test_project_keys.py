"""One repository is one project, however it is cloned."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.project import argument_key, free_slug, known_as, origin_key, slug_of, slugify


@pytest.mark.parametrize(
    "url",
    [
        "git@github.com:Ada/Engine.git",
        "https://github.com/Ada/Engine",
        "https://token@GitHub.com/Ada/Engine.git/",
        "https://ada:p@ss:word@github.com/Ada/Engine.git",
        "ssh://git@github.com:22/Ada/Engine.git",
        "git://github.com/Ada/Engine.git",
    ],
)
def test_every_way_to_write_a_remote_gives_one_key(url: str) -> None:
    assert origin_key(url) == "git:github.com/Ada/Engine"


@pytest.mark.parametrize(
    "url", ["/srv/git/engine.git", "../engine", "file:///srv/engine.git", "C:\\work\\engine", "", "https://"]
)
def test_a_remote_that_is_a_folder_names_no_project(url: str) -> None:
    assert origin_key(url) is None


def test_an_argument_is_a_key_or_a_name() -> None:
    assert argument_key("git:github.com/a/b") == "git:github.com/a/b"
    assert argument_key(" atlas ") == "name:atlas"
    assert argument_key("global") == argument_key("") == ""


def test_a_slug_is_the_last_part_of_the_key() -> None:
    assert slug_of("git:github.com/Ada/Analytical Engine") == "analytical-engine"
    assert slug_of("root:0123456789abcdef0123") == "0123456789ab"
    assert slug_of("name:Čačak ☂") == "cacak"
    assert slug_of("name:☂") == "project"


def test_a_taken_slug_gets_a_number() -> None:
    assert free_slug("engine", frozenset({"engine", "engine-2"})) == "engine-3"


def test_an_origin_added_later_joins_what_the_root_commit_named() -> None:
    assert known_as(("git:h/new", "root:abc"), {"root:abc": "engine"}) == "engine"
    assert known_as(("git:h/new",), {}) is None


@given(st.text())
def test_a_slug_is_a_file_name(text: str) -> None:
    slug = slugify(text)
    assert slug == "" or (slug.isascii() and slug == slugify(slug) and len(slug) <= 48)


@given(st.text())
def test_no_remote_makes_it_fail(url: str) -> None:
    key = origin_key(url)
    assert key is None or key.startswith("git:")
