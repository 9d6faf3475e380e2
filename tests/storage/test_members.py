"""Principals, memberships and the audit log in PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from mcp_server.app import open_members
from mcp_server.errors import Invalid, NotFound, Unavailable
from mcp_server.storage.members import AuditEntry, Members
from mcp_server.storage.postgres.migrate import ROLE, SCHEMA

LOGIN, OTHER = "https://login.example.org", "https://other.example.org"


@pytest.fixture
def members(address: str) -> Iterator[Members]:
    with open_members(address) as members:
        yield members


def test_the_first_sign_in_makes_one_workspace_however_many_replicas_it_reaches(address: str) -> None:
    with open_members(address) as one, open_members(address) as two, ThreadPoolExecutor(16) as threads:
        subjects = [f"s{number % 4}" for number in range(32)]
        found = list(threads.map(lambda n: (one, two)[n % 2].sign_in(LOGIN, subjects[n], "Anna"), range(len(subjects))))
        assert len({who.personal for who in found}) == 4
        assert all(who.roles == {who.personal: "owner"} for who in found)
        with psycopg.connect(address) as connection:
            names = connection.execute(f"SELECT name FROM {SCHEMA}.workspace").fetchall()
        assert {name for (name,) in names} == {"main", *(who.personal for who in found)}
        assert one.secret("k") == two.secret("k") != one.secret("l")


def test_the_same_subject_of_another_issuer_is_another_principal(members: Members) -> None:
    one, two = members.sign_in(LOGIN, "anna", ""), members.sign_in(OTHER, "anna", "")
    assert one.personal != two.personal
    members.add("main", OTHER, "anna", "reader")
    assert "main" not in members.sign_in(LOGIN, "anna", "").roles
    assert members.sign_in(OTHER, "anna", "").roles["main"] == "reader"
    with pytest.raises(Invalid, match="several issuers have a subject 'anna'"):
        members.add("main", None, "anna", "reader")


def test_a_member_can_be_named_before_signing_in(members: Members) -> None:
    with pytest.raises(NotFound, match="nobody with the subject 'bob' has signed in"):
        members.add("main", None, "bob", "reader")
    members.add("main", LOGIN, "bob", "reader")
    bob = members.sign_in(LOGIN, "bob", "Bob Berg")
    assert bob.roles == {"main": "reader", bob.personal: "owner"}
    members.add("main", None, "bob", "owner")
    assert [(one.name, one.role, one.personal) for one in members.all("main")] == [("Bob Berg", "owner", bob.personal)]


def test_a_workspace_that_was_taken_away_is_not_made_again(members: Members) -> None:
    anna = members.sign_in(LOGIN, "anna", "")
    members.remove(anna.personal, "anna")
    assert members.sign_in(LOGIN, "anna", "Anna").roles == {}
    with pytest.raises(NotFound, match="is no member"):
        members.remove(anna.personal, "anna")


def test_the_audit_log_belongs_to_its_workspace(address: str, members: Members) -> None:
    anna = members.sign_in(LOGIN, "anna", "")
    entry = AuditEntry(datetime.now(UTC), anna.id, "client", "tools/call read", ["a.md"], "ok")
    members.record(anna.personal, entry)
    assert [(line.principal, line.targets) for line in members.log(anna.personal, 10)] == [("anna", ["a.md"])]
    assert members.log("main", 10) == []
    with pytest.raises(Unavailable, match="was deleted"):
        members.record("none", entry)


def test_the_rights_that_the_documentation_names_suffice_for_a_server(address: str, members: Members) -> None:
    text = (Path(__file__).parent.parent.parent / "docs" / "team.md").read_text("utf-8")
    grants: list[str] = re.findall(r"^GRANT .*;$", text, re.MULTILINE)
    assert len(grants) == 6
    with psycopg.connect(address, autocommit=True) as administrator:
        administrator.execute("DROP ROLE IF EXISTS server")
        administrator.execute("CREATE ROLE server LOGIN")
        for grant in grants:
            administrator.execute(grant.replace("TO anna", "TO server").encode())
        with open_members(address.replace("postgres@", "server@")) as plain:
            anna = plain.sign_in(LOGIN, "anna", "")
            plain.record(anna.personal, AuditEntry(datetime.now(UTC), anna.id, "", "tools/call read", [], "ok"))
            plain.secret("k")
            plain.add("main", None, "anna", "reader")
            plain.remove("main", "anna")
        administrator.execute(f"REVOKE {ROLE} FROM server")
        administrator.execute("DROP OWNED BY server; DROP ROLE server")
