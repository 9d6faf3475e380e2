"""A memory of a small project and a session of thirty prompts in it, each with what is relevant, labelled by hand.

Written before anything was measured on it. A passage counts as relevant to a prompt if it holds one of the marks named
with it: the fact that a colleague who had been there would mention.
"""

from __future__ import annotations

from dataclasses import dataclass

EARLIER: dict[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "auth": (
        "2026-01-12",
        (
            ("user", "Let's decide how people stay logged in on Harbor. The mobile app comes next year."),
            ("agent", "Two options: server-side session cookies or JWTs. Cookies are simpler to revoke."),
            ("user", "We go with session cookies, thirty days, no JWT. I want to be able to revoke a session at once."),
            ("agent", "Done: sessions live in Postgres, the cookie lasts thirty days, and /logout deletes the row."),
            ("user", "The login page also needs a rate limit, five tries a minute per address."),
            ("agent", "I added a token bucket in middleware/ratelimit.py with five tries a minute."),
        ),
    ),
    "database": (
        "2026-01-15",
        (
            ("user", "On my laptop Postgres must run on port 5433, because 5432 is taken by the accounting project."),
            ("agent", "Noted. docker-compose.yml now maps 5433 to the container, and .env.local says so."),
            (
                "user",
                "Migrations: we use alembic, one revision per pull request, never autogenerate without reading it.",
            ),
            ("agent", "I wrote that into CONTRIBUTING.md; `make migrate` runs alembic upgrade head."),
            ("user", "thanks, that works"),
        ),
    ),
    "payments": (
        "2026-01-20",
        (
            ("user", "The Stripe webhook signature check fails on staging, every event is rejected with 400."),
            (
                "agent",
                "The JSON middleware had parsed the body before the check. Stripe signs the raw bytes, so the webhook "
                "route now reads request.body() before any middleware touches it. The signature check passes.",
            ),
            ("user", "Refunds are free until 48 hours after booking, then we keep ten percent."),
            ("agent", "Implemented in billing/refunds.py with FREE_REFUND_HOURS = 48."),
            ("user", "Can you also log the Stripe event id with every webhook?"),
            ("agent", "Yes, structured logs now carry stripe_event_id."),
        ),
    ),
    "deploy": (
        "2026-01-24",
        (
            ("user", "How do we deploy? I forgot the names."),
            ("agent", "Fly.io: harbor-prod in region fra is production, harbor-staging is staging."),
            ("user", "Rule: we never deploy on Fridays, Marko got paged twice."),
            ("agent", "I put a check into `make ship`: it refuses on Fridays unless FORCE=1."),
        ),
    ),
    "flaky": (
        "2026-01-29",
        (
            ("user", "test_calendar_overlap is flaky, it fails some nights on CI."),
            (
                "agent",
                "It builds times with datetime.now() and crosses the daylight saving change in March: an hour is "
                "missing. I froze the clock with time-machine and used UTC in the fixture; 500 runs passed.",
            ),
            ("user", "Good. Freeze the clock in every calendar test from now on."),
        ),
    ),
    "design": (
        "2026-02-03",
        (
            ("user", "Ana sent the design: buttons in teal, #0f766e, and the font is Inter, no shadows anywhere."),
            ("agent", "I set the teal as --color-accent in theme.css and removed the box shadows."),
            ("user", "She also wants the calendar to start on Monday."),
            ("agent", "Done, weekStartsOn is 1."),
        ),
    ),
    "speed": (
        "2026-02-06",
        (
            ("user", "The availability search takes 1.9 seconds for a week in July."),
            (
                "agent",
                "The planner scanned all bookings. A GiST index on tstzrange(starts_at, ends_at) brings the "
                "availability query to 40 ms. Migration 0042 adds it.",
            ),
            ("user", "Great, keep that index when you touch the bookings table."),
        ),
    ),
    "mail": (
        "2026-02-10",
        (
            ("user", "We send mail through Postmark; the templates live in emails/ as MJML."),
            ("agent", "I moved the confirmation mail to emails/confirmation.mjml and wired up Postmark."),
            ("user", "Bounces: after two hard bounces stop mailing that address."),
            ("agent", "Implemented: bounce_count on users, and the sender skips addresses with two or more."),
        ),
    ),
    "newsletter": (
        "2026-02-12",
        (
            ("user", "The newsletter form should only ask for an address, no name."),
            ("agent", "I removed the name field from newsletter.html."),
            ("user", "And say above it that we write once a month."),
            ("agent", "The line stands above the field now."),
            ("user", "Fine, we go on with something else next time."),
            ("agent", "All right."),
        ),
    ),
}
"""Conversations of the project, by what they were about: the day, and who said what."""

ELSEWHERE: tuple[tuple[str, str], ...] = (
    ("user", "When should I plant the tomatoes on the balcony?"),
    ("agent", "After the last frost, in Novi Sad in the middle of May; harden them off for a week."),
    ("user", "The basil on the north side died again."),
    ("agent", "Basil wants six hours of sun; put it beside the tomatoes on the south side."),
)
"""A conversation without a project, seen from everywhere."""

MEMORY = """# Memory

## Preferences

- 2026-01-03: Prefers pytest over unittest, and short functions.
- 2026-01-05: Marko reviews every pull request before it is merged.

## Facts

- 2026-01-08: The staging database is reset every Sunday night.
"""

PROCEDURE = """# Release

1. Run the whole test suite.
2. Bump the version in pyproject.toml and write the changelog.
3. Tag the release as vX.Y.Z and run make ship.
4. Watch the error rate in Sentry for thirty minutes.
"""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is typed, the marks of what is relevant to it, and what the model answers."""

    text: str
    relevant: tuple[str, ...] = ()
    answer: str = "Done."


PROMPTS: tuple[Prompt, ...] = (
    Prompt("hi, let's continue on harbor"),
    Prompt(
        "the stripe webhook signature check fails again on staging",
        ("signs the raw bytes", "rejected with 400"),
        "I will look at the order of the middleware.",
    ),
    Prompt("ok"),
    Prompt("which port does postgres run on locally?", ("5433",), "It is 5433 on your laptop."),
    Prompt("thanks"),
    Prompt("add a docstring to the function you just wrote"),
    Prompt("rename foo to booking_id in views.py"),
    Prompt("can we deploy today, it's friday?", ("never deploy on Fridays", "refuses on Fridays")),
    Prompt("/clear"),
    Prompt("how long are refunds free after a booking?", ("48 hours", "FREE_REFUND_HOURS")),
    Prompt("write a regex that matches ISO dates"),
    Prompt("what colour did Ana want for the buttons?", ("teal",)),
    Prompt("continue"),
    Prompt("test_calendar_overlap failed on CI last night", ("daylight saving", "flaky", "Freeze the clock")),
    Prompt("the stripe webhook signature check still fails on staging", ("signs the raw bytes", "rejected with 400")),
    Prompt("explain what a monad is in one paragraph"),
    Prompt("which mail provider do we use and where are the templates?", ("Postmark", "confirmation.mjml")),
    Prompt("👍"),
    Prompt("the availability search is slow again", ("GiST", "1.9 seconds", "keep that index")),
    Prompt("add type hints to parser.py"),
    Prompt("who reviews my pull requests?", ("Marko reviews",)),
    Prompt("what is the production app on fly called?", ("harbor-prod",)),
    Prompt("!git status"),
    Prompt("# buy milk"),
    Prompt("what is the capital of Mongolia?"),
    Prompt("should the mobile app use JWT or session cookies?", ("session cookies",)),
    Prompt("sort the imports please"),
    Prompt("yes, do it"),
    Prompt("how do we run migrations?", ("alembic",)),
    Prompt("good night, see you tomorrow"),
)
