"""Going on: does a message only ask to take up what was done before? "continue", "where were we?".

Such a message is about nothing that a search could find, and yet it bears on one thing: the conversation before.
"""

from __future__ import annotations

from mcp_server.context.injection import subject_words
from mcp_server.text.words import words

PHRASES = tuple(
    phrase.strip()
    for line in (
        "continue, resume, proceed, go on, carry on, keep going, pick up, left off, leave off, where were we",
        "where was i, where did we stop, where did i stop, what were we doing, what was i doing, were we working on",
        "was i working on, did we do, did i do, have we done, have i done, last time, last session, last conversation",
        "previous session, previous conversation, nastavi, nastavimo, nastavljamo, gde smo stali, gde smo bili",
        "sta smo radili, prosli put, weiter, weitermachen, wo waren wir, wo sind wir, letztes mal",
    )
    for phrase in line.split(",")
)
"""Folded, as `words` writes them: one of them must stand in the message …"""

ABOUT_IT = frozenset(
    word
    for line in (
        "left leave leaving off stopped pick up session sessions yesterday working doing done previous earlier work",
        "task project code coding conversation did do have gde smo stali bili sta radili prosli put nastavimo juce",
        "nastavljamo posao weitermachen wo waren sind wir letztes mal gestern arbeit",
    )
    for word in line.split()
)
"""… and no other word that it is about: who names a subject wants that."""

LONGEST = 300
"""Characters: who says more wants more than to go on."""


def asks_to_go_on(message: str, project: str = "") -> bool:
    """Whether a message asks for what was done before, whatever that was. A command of the client never does. The name
    of the `project` that it is said in is no subject."""
    said = message.strip()
    if not said or said[0] in "/!#<" or len(said) > LONGEST:
        return False
    spoken = f" {' '.join(words(said))} "
    return any(f" {phrase} " in spoken for phrase in PHRASES) and not subject_words(said) - ABOUT_IT - {*words(project)}
