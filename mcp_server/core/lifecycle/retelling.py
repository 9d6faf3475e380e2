"""Retelling: what somebody says of themselves, told by somebody else. "I love my dog" → "Ana loves their dog".

English only, and only where it can be done well: a sentence of "we", or one whose subject is left out, keeps its words
and is introduced ("Ana said: we went camping."). `their` stands for `my`, since nobody's gender is known.
"""

from __future__ import annotations

import re


def _listed(text: str) -> frozenset[str]:
    return frozenset(text.split())


_IRREGULAR = {"have": "has", "do": "does", "go": "goes", "am": "is", "be": "is", "were": "was"}
_CONTRACTED = {
    "i'm": "is",
    "i've": "has",
    "i'll": "will",
    "don't": "doesn't",
    "haven't": "hasn't",
}
_UNCHANGED = _listed(
    """
    was had did went saw took got made said told came found gave felt left knew thought kept began wrote won met
    ran ate brought bought built caught chose drove fell fought flew forgot grew heard held led lent lost paid
    rode rang rose sang sat sold sent shot slept spoke spent stood stole stuck swam taught tore threw understood
    woke wore became broke drew drank dealt hid laid lit meant shook struck swore swept wound sought ended could
    can will would should might may must can't couldn't won't wouldn't shouldn't didn't wasn't hadn't is has
    doesn't hasn't isn't used ought dreamt learnt burnt shot retook rewrote rebuilt overcame underwent forgave
    withdrew undertook redid fed bred crept fled knelt leapt lay slid spun stung strode strove wept wove woven
    flung swung sank stank rang shrank sprang hung dug put cut set hit let quit read hurt cost bet shut split
    spread beat cannot
    """
)
_ADVERBS = _listed(
    """
    just also always never still ever often sometimes really actually finally recently usually only even already
    now then soon once totally definitely probably absolutely simply mainly mostly honestly currently kinda sorta
    sort-of truly deeply especially both first almost truly rarely generally typically occasionally constantly
    initially
    """
)
_BASE = (
    "love|enjoy|want|need|try|feel|find|keep|hope|think|know|make|get|go|take|give|see|look|like|work|live|play|help"
    "|use"
)
_COORDINATED = re.compile(rf"\band (?P<adverb>(?:\w+ly|also|always|just|really) )?(?P<verb>{_BASE})\b(?! of\b)")
_SUBJECT = re.compile(
    r"(?P<lead>\band )?\b(?P<i>I(?:'(?:m|ve|ll|d))?)\s+"
    rf"(?P<adverbs>(?:(?:{'|'.join(sorted(_ADVERBS))}|(?!only\b|rely\b|apply\b|reply\b|fly\b"
    rf"|supply\b)[a-z]+ly),? )*)(?P<verb>[A-Za-z'-]+)"
)
_OWN = re.compile(
    r"(?<!-)\b(?P<own>me|myself|my|mine|My|Me|we|us|our|ours|ourselves|We|Us|Our)\b(?P<tail>'(?:re|ve|ll|d)\b)?(?!-)"
)
_TOGETHER = re.compile(
    r"\b(?:[Mm]y (?P<others>[\w'-]+(?: [\w'-]+){0,2}) and I\b(?!')|(?:Both )?[Mm]e and my (?P<after>[\w'-]+)\b)"
)
_OTHERS = re.compile(r"\b(?:they|them|their|theirs|themselves)\b|\b(?:they)'\w+", re.IGNORECASE)
"""Words that may mean somebody else."""
_WE = re.compile(r"\b(?:we|us|ours|ourselves|let's|we'\w+)\b", re.IGNORECASE)
_SMALL = _listed(
    """
    we our my the a an in on at last after when while just it this that next both everyone been gonna all since
    for from during before with one two three had got went took made started finished planning some there every
    even once as yesterday today tomorrow now so these those working taking i've i'm always never please do don't
    """
)
"""Words that are lower case inside a sentence."""
_COMPANY = re.compile(
    r"\b(?:[Mm]y (?P<before>(?:[\w'-]+ )?{people}) and I\b|[Mm]e and my (?P<after>{people})\b"
    r"|with (?P<whose>my|some|the|a few|our|two|three) "
    r"(?P<who>(?:[\w'-]+ ){{0,2}}?{people}(?: from (?!there)[\w'-]+)?)\b)".format(
        people="(?:friends?|family|fam|kids?|children|husband|wife|partner|girlfriend|boyfriend|fianc[ée]e?|team|teammates?"
        "|colleagues?|co-?workers|workmates|gang|crew|parents|mom|mum|dad|mother|father|sisters?|brothers?|siblings"
        "|cousins?|son|daughter|grandma|grandpa|grandparents|classmates|roommates?|neighbou?rs|squad|band|buddies|bestie|students)"
    )
)
_INVERTED = re.compile(r"\b(?:am|was|do|did|have|had|can|could|will|would|should) I\b")
_PLURAL = {"am": "are", "was": "were", "wasn't": "weren't", "'m": "'re"}


def company(message: str) -> str | None:
    """With whom somebody is in what a message tells ("their kids", "some friends from church"); None where it names
    nobody, or now these and now those."""
    found = set()
    for match in _COMPANY.finditer(message.replace("’", "'")):
        whose = "their" if (match["whose"] or "my") in ("my", "our") else match["whose"]
        found.add(f"{whose} {match['before'] or match['after'] or match['who']}")
    return found.pop() if len(found) == 1 else None


def retold(sentence: str, name: str, others: str | None = None) -> str | None:
    """The sentence about `name` in the third person; None if it cannot be told well.

    Whoever speaks is named once and is "they" afterwards, unless "they" could be somebody else. "We" is `name` and
    `others`, as `company` names them.
    """
    text = sentence.replace("’", "'")
    if not re.search(r"\bI\b|\b(?:[Mm]y|[Mm]e|[Ww]e|[Oo]ur)\b", text) or re.search(r"\blet's\b", text, re.IGNORECASE):
        return None
    own_we = _WE.search(text) is not None
    clear = not own_we and _OTHERS.search(text) is None
    text = _TOGETHER.sub(lambda match: f"{name} and their {match['others'] or match['after']}", text, count=1)
    others = others or ("their team" if name.startswith("The ") else "others")
    named = name in text
    if not named and _INVERTED.search(text):
        return None
    pieces: list[str] = []
    end = 0
    present = False
    starts = sorted(
        [*_SUBJECT.finditer(text), *_OWN.finditer(text)],
        key=lambda match: match.start("i") if "i" in match.re.groupindex else match.start(),
    )
    for match in starts:
        if match.start() < end:
            continue
        if match.re is _OWN:
            told = _own(match, name, named, clear, others, text[match.end() :])
            if told is None:
                return None
            pieces += [text[end : match.start()], told]
            end, named = match.end(), True
            continue
        verb, before = match["verb"], match["adverbs"]
        joint = bool(match["lead"]) and _is_noun_before(text[: match.start()])
        continues = bool(match["lead"]) and not joint and match["i"] == "I"
        if named and clear and not joint and not continues:
            said = _they(match["i"], before, verb)
        else:
            told, finite = _conjugated(match["i"], before, verb, plural=joint)
            if told is None:
                return None
            present = present or finite
            said = told if continues else f"{name} {told}"
        pieces += [text[end : match.start()], match["lead"] or "", said]
        end, named = match.end(), True
    told_text = "".join([*pieces, text[end:]])
    if re.search(r"\b(?:I|my|we)\b(?!\.)", told_text):
        return None
    if present and " to " not in told_text:
        told_text = _COORDINATED.sub(lambda found: f"and {found['adverb'] or ''}{_third(found['verb'])}", told_text)
    if name.startswith("The "):  # "the user": no name, and so no capital inside a sentence
        told_text = told_text.replace(name, "the" + name[3:])
    return told_text[:1].upper() + told_text[1:]


def _own(match: re.Match[str], name: str, named: bool, clear: bool, others: str, after: str) -> str | None:
    """What "my", "me", "we", "our" become: of the one who is named at first, and clearly theirs afterwards."""
    word, tail = match["own"].lower(), match["tail"] or ""
    if word == "my":
        return "their" if named else f"{name}'s"
    if word == "our":
        return "their" if named else f"{name}'s"
    if word == "me":
        return "them" if named and clear else name
    if word == "us":
        return "them" if named else None
    if word == "we":
        if named:
            return f"they{tail}"
        long = {
            "": "",
            "'re": " are",
            "'ve": " have",
            "'ll": " will",
            "'d": " had" if _is_participle(after) else " would",
        }
        return f"{name} and {others}{long[tail]}"
    return {"myself": "themselves", "mine": "theirs", "ours": "theirs", "ourselves": "themselves"}[word]


def _is_participle(after: str) -> bool:
    return re.match(r" (?:\w+ed|been|gone|had|done|seen|made)\b", after) is not None


def _they(subject: str, adverbs: str, verb: str) -> str:
    """The verb group after "they": it is that of "I" but for the forms of "be"."""
    return f"they{_PLURAL.get(subject[1:], subject[1:])} {adverbs}{_PLURAL.get(verb, verb)}"


def introduced(sentence: str, name: str) -> str:
    """The sentence in its own words, with who said it."""
    said = sentence.strip()
    first = re.match(r"[A-Za-z]+", said)
    if first and (first[0].lower() in _SMALL or first[0].endswith(("ing", "ly"))) and first[0] != "I":
        said = said[:1].lower() + said[1:]
    return f"{name} said: {said}"


_NO_VERB = _listed("too and or but who as in on at for with myself alone of to by from the a an it not")
_AUXILIARY = _listed(
    """
    was is has had did do could can will would should might may must
    """
)


def _conjugated(subject: str, adverbs: str, verb: str, plural: bool) -> tuple[str | None, bool]:
    """The verb group for the third person, and whether it is a simple present."""
    subject = subject.lower()
    if subject == "i'd":
        had = verb.endswith(("ed", "en")) or verb.lower() in ("been", "gone", "had", "better", "done", "seen", "made")
        return f"{'had' if had else 'would'} {adverbs}{verb}", False
    if subject in _CONTRACTED:
        word = {"is": "are", "has": "have"}.get(_CONTRACTED[subject]) if plural else None
        return f"{word or _CONTRACTED[subject]} {adverbs}{verb}", False
    lower = verb.lower()
    if lower in _CONTRACTED:
        return f"{adverbs}{verb if plural else _CONTRACTED[lower]}", False
    if lower in _UNCHANGED or (lower.endswith("ed") and lower not in ("need", "feed", "speed", "heed")):
        return f"{adverbs}{verb}", False
    if plural:
        return f"{adverbs}{'are' if lower == 'am' else 'were' if lower == 'was' else verb}", False
    if not lower.isalpha() or lower.endswith("ing") or lower in _NO_VERB:
        return None, False
    return f"{adverbs}{_third(lower)}", lower not in _AUXILIARY


def _third(verb: str) -> str:
    if verb in _IRREGULAR:
        return _IRREGULAR[verb]
    if verb.endswith(("s", "sh", "ch", "x", "z", "o")):
        return verb + "es"
    if verb.endswith("y") and len(verb) > 1 and verb[-2] not in "aeiou":
        return verb[:-1] + "ies"
    return verb + "s"


def _is_noun_before(text: str) -> bool:
    """Whether "and I" joins two subjects ("my husband and I went", "Max and I") rather than two clauses."""
    said = re.split(r"[,.;:!?–—]", text)[-1].split()
    return 0 < len(said) <= 4 and (
        said[0].lower() in ("my", "our", "me", "the", "a") or all(word[0].isupper() for word in said)
    )
