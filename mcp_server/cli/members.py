"""`context-manager members`: who may use a workspace of a team, and who did what in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import click

from mcp_server.app import open_members
from mcp_server.cli import shell
from mcp_server.errors import NotFound, Unavailable
from mcp_server.home import team_address
from mcp_server.storage.members import ROLES, Member, Members, Role

ISSUER = "CONTEXT_MANAGER_OAUTH_ISSUER"


@contextmanager
def _members() -> Iterator[Members]:
    """Opens the members of the command's workspace. Raises Unavailable for a folder."""
    address = team_address(shell.chosen_workspace(), os.environ)
    if address is None:
        raise Unavailable(
            "only a memory on PostgreSQL has members; name it with --workspace 'postgresql://…?workspace=NAME'"
        )
    with open_members(address) as members:
        yield members


@shell.group("members", "members list", "members add anna --role reader", "members log")
def members_command() -> None:
    """List, add and remove the members of a team's workspace, which they reach over HTTP; show what they did.

    SUBJECT is the `sub` of a person's tokens. A refused call's answer contains it.
    """


@members_command.command("list")
def list_() -> None:
    """List the members with their roles."""
    with _members() as members:
        found = members.all(members.workspace)
    shell.print_list(
        found,
        "No members yet: members add SUBJECT.",
        ("subject", "name", "role", "issuer", "own workspace"),
        lambda one: (one.subject, one.name, one.role, one.issuer, one.personal),
    )


@members_command.command("add")
@click.argument("subject")
@shell.choice_option("--role", values=ROLES, default="writer", about="reader: search and read; owner: also forget.")
def add(subject: str, role: Role) -> None:
    """Let SUBJECT use the workspace, or change the role."""
    with _members() as members:
        members.add(members.workspace, os.environ.get(ISSUER), subject, role)
        shell.print_result(_one(members, subject), f"{subject} is a member of {members.workspace}: {role}.")


@members_command.command("remove")
@click.argument("subject")
@shell.apply_option
def remove(subject: str, apply: bool) -> None:
    """End the membership of SUBJECT, from the next call on."""
    with _members() as members:
        one = _one(members, subject)
        if apply:
            members.remove(members.workspace, subject)
        how = "is no longer" if apply else "would no longer be"
        shell.print_result({"member": one, "applied": apply}, f"{subject} {how} a member of {members.workspace}.")
        if not apply:
            shell.say_not_applied(f"members remove {subject}")


@members_command.command("log")
@shell.limit_option(50, "How many, newest first.")
def log(limit: int) -> None:
    """List who read and wrote what, newest first, without the content."""
    with _members() as members:
        found = members.log(members.workspace, limit)
    shell.print_list(
        found,
        "Nobody has used this workspace over HTTP yet.",
        ("at", "who", "did", "to", "outcome"),
        lambda one: (shell.moment(one.at), one.principal, one.action, ", ".join(one.targets), one.outcome),
    )


def _one(members: Members, subject: str) -> Member:
    found = next((one for one in members.all(members.workspace) if one.subject == subject), None)
    if found is None:
        raise NotFound(f"{subject!r} is not a member of {members.workspace}; `members list` shows the members")
    return found
