"""Splits texts into folded words and removes stop words.

`content_words` are the words that search looks up in the keyword index: folded, each once, without stop words.
The gate also ignores words that only continue a conversation.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import pairwise


def listed(text: str) -> frozenset[str]:
    """Returns the words of a text that is a list of words."""
    return frozenset(text.split())


ENGLISH_STOP_WORDS = listed(
    """
    a an the this that these those there here it its itself i me my mine myself you your yours yourself
    yourselves we us our ours ourselves he him his himself she her hers herself they them their theirs
    themselves one ones who whom whose what which when where why how whatever whichever whoever whenever
    wherever am is are was were be been being do does did doing done have has had having can could shall should
    will would may might must ought need isn aren wasn weren don doesn didn haven hasn hadn couldn shouldn
    wouldn mustn won ain cannot and or but nor so yet if then else than because since while until unless
    although though whether of in on at to for from by with without within into onto upon about between among
    through during before after above below over under against toward towards across along around behind beside
    besides off out up down per via as not no yes only just also too very really quite rather even still ever
    never always often again already all any both each either every few many more most much neither none other
    others another own same some several such something anything everything nothing someone anyone everyone
    thing things lot lots get gets got getting go goes going gone went come comes came let lets make makes made
    now ago etc ok okay please thanks thank
    """
)

SERBIAN_STOP_WORDS = listed(
    """
    i a ali ili pa te ni niti da ne li je sam si smo ste su bio bila bilo bili bile biti budem bude budes budu
    ja ti on ona ono mi vi oni one me mene meni mnom tebe tebi njega njemu ga mu nje njoj joj nju nas nam vas
    vam njih njima ih im moj moja moje moji tvoj tvoja tvoje njegov njegova njen njena nasa nase vasa vase
    njihov svoj svoja svoje se sebe sebi ovaj ova ovo ovi taj ta to onaj koji koja koje koga kome kojih ko sta
    sto kako kada kad gde zasto koliko cega cemu ciji cija u na iz od do za sa s o po pri pre posle kod bez kroz
    uz pod nad oko izmedju izmedu prema zbog radi protiv ako jer dok nego vec jos samo isto tako onda sad sada
    tu tamo ovde bas vrlo veoma mnogo malo svi sve sav sva neki neka neko nesto nista niko cu ces ce cemo cete
    hocu hoces hoce bih bi bismo biste moze mogu mozes mozemo mozete treba imam imas ima imamo imate nema nemam
    hvala molim
    """
)

TALK_WORDS = listed(
    """
    hi hello hey bye goodbye welcome morning evening night good great nice cool super perfect fine sure right
    exactly correct wrong sorry bad best better well yeah yep yup nope hmm lol wow oops alright agreed
    understood clear sense looks look sounds sound like love want wanted continue proceed keep next back wait
    stop start again try retry repeat undo redo say said says tell told talk talking see seen know think guess
    mean hope feel believe work works working worked done ready finished different first second last time times
    moment minute break today tomorrow later soon weekend week joke shorter longer short long version previous
    above thing stuff way bit kind sort explain describe show give list help question questions answer answers
    ask asked asking mention mentioned discuss discussed conversation conversations chat chats message messages
    summarize summarise summary overview detail details comprehensive mind ahead helped helps helpful helping
    appreciate appreciated take takes took taken put turn absolutely definitely certainly indeed totally course
    interesting awesome amazing wonderful excellent brilliant fantastic beautiful cheers congrats thx ty np
    congratulations haha hehe ah oh uh um huh ugh gotcha noted roger fair enough problem worries glad happy
    pleased fun run rerun fix fixed check apply change changes leave rest pause resume finish finally maybe
    perhaps probably please minutes seconds hold hang hows whats suggest recommend remind remember recall walk
    example examples item items step steps read write use using dobro dan jutro vece zdravo cao nastavi dalje
    hajde idemo odlicno jasno radi uradi ponovo opet objasni kazi reci razumem znam mislim mozda uredu red vazi
    tacno hvala vidi vidimo sutra kasnije cekaj stani probaj bolje manje vise lepo dobra dobru noc guten tag
    hallo danke bitte weiter gut alles klar passt genau nein nochmal variante lieber morgen abend tschuss bis
    spater mach mache machen einfach prima toll okay warte stopp
    """
)
"""Folded words about the conversation itself. A message with no other words has no subject. Only search uses them."""

FRAME_WORDS = listed(
    """
    list listed order brought bring mention items number numbers total overall main key current currently far
    aspect aspects different various several specific related regarding including include across throughout
    one two three four five six seven eight nine ten
    redosled redosledom spisak stavki broj ukupno razliciti razlicite razlicitih jedan dva tri cetiri pet
    reihenfolge liste punkte anzahl insgesamt verschiedene verschiedenen eins zwei drei vier funf
    """
)
"""Folded words about the form of an answer. They are rare in a memory, so their IDF would be too high."""

STOP_WORDS = ENGLISH_STOP_WORDS | SERBIAN_STOP_WORDS
"""Folded, as `fold` writes them."""

ENGLISH = "english"
LEAST_OF_LANGUAGE = 2
"""Least number of stop words of a language in a message of that language."""

LONGEST = 4_000
"""Characters of a message that are read as a query, half from its beginning and half from its end, where people write
their requests."""

_LETTERS = str.maketrans(
    dict(zip("đĐłŁøØıßæÆœŒ", ["d", "d", "l", "l", "o", "o", "i", "ss", "ae", "ae", "oe", "oe"], strict=True))
)
"""Letters that Unicode does not decompose."""

LONGEST_KEPT = 16
"""Longest run of non-ASCII characters whose folded form is cached: "ü", "–", a word in Cyrillic."""

_CONTRACTION = re.compile(r"(?<=\w)['’](?:s|t|d|m|re|ve|ll)\b", re.IGNORECASE)
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(r"([\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff]+)")
"""A run of Chinese characters, hiragana or katakana, which have no spaces between words."""
_MONTH_MAY = re.compile(r"\b(?:\d|in|since|of|on|last|this|next|until|by) May\b|\bMay,? \d")


def fold(text: str) -> str:
    """Returns the text in lower case without diacritics (č ć š ž → c c s z, đ → d), the form of the index."""
    return (text if text.isascii() else _NOT_ASCII.sub(_without_marks, text)).lower()


def _without_marks(found: re.Match[str]) -> str:
    run = found[0]
    return _decomposed(run) if len(run) <= LONGEST_KEPT else _decomposed.__wrapped__(run)


@lru_cache(maxsize=4096)
def _decomposed(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text.translate(_LETTERS))
    return "".join(c for c in decomposed if not unicodedata.combining(c))


def words(text: str) -> list[str]:
    """Returns all words of a text in order, folded. English contractions lose their tail ("didn't" → "didn", "Ana's").

    Chinese and Japanese have no spaces between words: each two adjacent characters are one word.
    """
    folded = fold(_CONTRACTION.sub("", text) if "'" in text or "’" in text else text)
    found = _WORD.findall(folded)
    if folded.isascii() or not has_no_spaces(folded):
        return found
    return [part for word in found for run in _UNSPACED.split(word) if run for part in _pairs(run)]


def has_no_spaces(text: str) -> bool:
    """Returns whether a text has characters of a script without spaces between words."""
    return _UNSPACED.search(text) is not None


def _pairs(run: str) -> Iterator[str]:
    """Yields the overlapping pairs of characters of an unspaced run; a single character or another word unchanged."""
    if len(run) < 3 or not _UNSPACED.match(run):
        return iter((run,))
    return map("".join, pairwise(run))


def stop_words(spoken: Sequence[str]) -> frozenset[str]:
    """Returns the stop words for a message: the English ones, and those of its language if it is another one.

    Words of other languages count only then: "sad", "die" and "war" are English words, too.
    """
    language = language_of(spoken)
    return _stop_words_with(language) if language not in ("", ENGLISH) else ENGLISH_STOP_WORDS


def language_of(spoken: Sequence[str]) -> str:
    """Returns the language of a message by its stop words ("english", "german"), or "" if there are too few."""
    english = sum(map(ENGLISH_STOP_WORDS.__contains__, spoken))
    if english > LEAST_OF_LANGUAGE and 4 * english > len(spoken):
        return ENGLISH
    known = _languages()
    said = Counter(language for word in spoken if word not in ENGLISH_STOP_WORDS for language in known.get(word, ()))
    language, number = max(said.items(), key=lambda item: item[1], default=("", 0))
    only_english = sum(word in ENGLISH_STOP_WORDS and language not in known.get(word, ()) for word in spoken)
    if number >= max(LEAST_OF_LANGUAGE, 2 * only_english + 1):
        return language
    return ENGLISH if only_english >= LEAST_OF_LANGUAGE else ""


def languages_of(texts: Sequence[str]) -> list[str]:
    """Returns the language of each message of a conversation. A message with too few words has that of the message
    before it, or English."""
    own = [language_of(words(text)) for text in texts]
    return [language or before or ENGLISH for language, before in zip(own, ["", *own], strict=False)]


@cache
def _languages() -> dict[str, tuple[str, ...]]:
    """Returns the folded stop words of all other languages, each with the languages that have it."""
    from stop_words import AVAILABLE_LANGUAGES, get_stop_words  # takes 25 ms; English needs none

    found: dict[str, tuple[str, ...]] = dict.fromkeys(SERBIAN_STOP_WORDS, ("serbian",))
    for language in sorted({*AVAILABLE_LANGUAGES} - {"english"}):
        for word in {part for listed in get_stop_words(language) for part in words(listed)}:
            found[word] = (*found.get(word, ()), language)
    return found


@cache
def _stop_words_with(language: str) -> frozenset[str]:
    return ENGLISH_STOP_WORDS.union(word for word, languages in _languages().items() if language in languages)


def content_words(text: str, also_leave_out: Iterable[str] = ()) -> list[str]:
    """Returns the words of a text without stop words, each once, in order. The month of May is kept.

    `also_leave_out` are further folded words to remove, for instance the names of a workspace's speakers.
    """
    spoken = words(text)
    left_out = stop_words(spoken)
    if also_leave_out:  # `union` copies the set, so avoid it for each text
        left_out = left_out.union(also_leave_out)
    if "may" in left_out and "may" in spoken and _MONTH_MAY.search(text):
        left_out -= {"may"}
    return list(dict.fromkeys(word for word in spoken if word not in left_out))


def names_in(text: str, names: Iterable[str]) -> list[str]:
    """Returns the `names` (of people) that a text mentions, whole or by a part of two letters or more."""
    said = set(words(text)) - ENGLISH_STOP_WORDS
    return [name for name in names if any(len(part) > 1 and part in said for part in words(name))]


def bounded(text: str, most: int = LONGEST) -> str:
    """Returns a message, or the beginning and end of a longer one: `most` characters and a space."""
    return text if len(text) <= most else f"{text[: most // 2]} {text[-most // 2 :]}"
