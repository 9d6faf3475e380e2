"""Reads times as people write them (`moment`), and makes relative dates of a text absolute (`absolute`).

`moment` reads `2026-02-16 18:45`, `2026-W07`, `yesterday` and `2 weeks ago`. `absolute` turns "yesterday", said on
8 May 2023, into "on 7 May 2023". Days become days; weeks, weekends, months and years become "in the week before
3 July 2023" or "in April 2023". Words that name no exact time ("recently", "the other day") stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta

_AGO = re.compile(r"(\d{1,4}|an?|one)\s+(hour|day|week|month|year)s?(?:\s+ago)?", re.IGNORECASE)
_HOURS = {"hour": 1, "day": 24, "week": 7 * 24, "month": 30 * 24, "year": 365 * 24}
_WEEK = re.compile(r"(\d{4})-W(\d\d)", re.IGNORECASE)
_ISO_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*")


def moment(text: str, now: datetime, *, end: bool = True) -> datetime | None:
    """Returns the moment that a text names, in the time zone of `now` unless it names one; None for any other text.

    A day or a week (ISO 8601) means its last second; with `end=False` its first. Months have 30 days, years 365.
    """
    text = " ".join(text.split())
    if text.lower() == "now":
        return now
    if text.lower() in ("today", "yesterday"):
        return _of_day(now - timedelta(days=text.lower() == "yesterday"), end, now)
    try:
        if ago := _AGO.fullmatch(text):
            count = int(ago[1]) if ago[1].isdigit() else 1
            return now - timedelta(hours=count * _HOURS[ago[2].lower()])
        if week := _WEEK.fullmatch(text):
            return _of_day(datetime.fromisocalendar(int(week[1]), int(week[2]), 7 if end else 1), end, now)
        if _ISO_DAY.fullmatch(text):
            return _of_day(datetime.fromisoformat(text), end, now)
        if _TIME.fullmatch(text):
            found = datetime.fromisoformat(text)
            return found if found.tzinfo else found.replace(tzinfo=now.tzinfo)
    except (ValueError, OverflowError):
        return None
    return None


def _of_day(day: datetime, end: bool, now: datetime) -> datetime:
    midnight = datetime(day.year, day.month, day.day, tzinfo=now.tzinfo)
    return midnight.replace(hour=23, minute=59, second=59) if end else midnight


MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September", "October"),
    *("November", "December"),
)
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NUMBER_WORDS = "a/an/one two/couple three four five six seven eight nine ten eleven twelve"
NUMBERS = {word: number for number, words in enumerate(_NUMBER_WORDS.split(), 1) for word in words.split("/")}

_DAY = r"(?P<weekday>mon(?:day)?|tue(?:s|sday)?|wed(?:nesday)?|thu(?:rs|rsday)?|fri(?:day)?|sat(?:urday)?|sun(?:day)?)"
_COUNT = r"(?P<count>\d{1,3}|" + "|".join(sorted(NUMBERS, key=len, reverse=True)) + ")"
_DATE = rf"(?!,? (?:{'|'.join(month[:3] for month in MONTHS)}))"
"""Matches if no date follows, as in "Tuesday, November 24"."""
_BEFORE = r"(?:\b(?:on|in|at|from|since|until|over|during|for|by|of|this past)\s+)?"


@dataclass(frozen=True, slots=True)
class Dated:
    """A text with absolute dates. `day` is the day that its relative dates name, if they name exactly one. `past` and
    `future` say whether one of them is before or after the day on which the text was said."""

    text: str
    day: date | None = None
    past: bool = False
    future: bool = False


def written(day: date, this_year: int | None = None) -> str:
    """Returns a date as people write it, without the year if it is `this_year`: 7 May 2023."""
    return f"{day.day} {MONTHS[day.month - 1]}{'' if day.year == this_year else f' {day.year}'}"


def absolute(text: str, said: date) -> Dated:
    """Returns a text that was said on the day `said`, with absolute dates."""
    days: list[date] = []
    begins_large = text[:1].isupper()
    past = future = False
    for pattern, work_out in _RULES:

        def replaced(match: re.Match[str], work_out: _WorkOut = work_out) -> str:
            nonlocal past, future
            try:
                found = work_out(match, said)
            except OverflowError:  # before the year 1 or after 9999
                found = None
            if found is None:
                return match[0]
            words, day, direction = found
            past, future = past or direction < 0, future or direction > 0
            if day is not None:
                days.append(day)
            kept = re.match(r"(?:since|until|from|by)\b", match[0], re.IGNORECASE)
            return f"{kept[0]} {words.split(' ', 1)[1]}" if kept and " " in words else words

        text = pattern.sub(replaced, text)
    if begins_large and text[:1].islower():
        text = text[:1].upper() + text[1:]
    text = _AS_SUBJECT.sub(lambda match: match[1][:1].upper() + match[1][1:], text)
    return Dated(text, days[0] if len(set(days)) == 1 else None, past, future)


_AS_SUBJECT = re.compile(
    rf"^(?:In|On|Around) ((?:the (?:week|weekend"
    rf"|evening)[^,.]{{0,20}} )?(?:(?:\w+day, )?\d{{1,2}} )?(?:{'|'.join(MONTHS)})? ?\d{{4}} "
    r"(?:was|is|has been|will be|turned out)\b)"
)
"""Matches a time that is the subject of a sentence: "Last week was wild"."""

_Found = tuple[str, date | None, int]
_WorkOut = Callable[[re.Match[str], date], _Found | None]


def _offset(days: int, words: str = "on {}") -> _WorkOut:
    def work_out(_: re.Match[str], said: date) -> _Found:
        day = said + timedelta(days=days)
        return words.format(written(day)), day, days

    return work_out


def _weekday(match: re.Match[str], said: date) -> _Found | None:
    """Returns the latest Friday before that day for `last Friday`, the first one after it for `next` and `this`."""
    return _nearest(match, said, match["which"].lower() in ("last", "past", "this past"))


def _nearest(match: re.Match[str], said: date, is_past: bool) -> _Found:
    """Returns the latest day before `said`, or the first one after it, with the weekday of the match."""
    wanted = next(place for place, name in enumerate(WEEKDAYS) if name.startswith(match["weekday"].lower()[:3]))
    back, ahead = (said.weekday() - wanted) % 7 or 7, (wanted - said.weekday()) % 7 or 7
    day = said - timedelta(days=back) if is_past else said + timedelta(days=ahead)
    return f"on {WEEKDAYS[wanted].capitalize()}, {written(day)}", day, -1 if is_past else 1


_WAS = re.compile(
    r"\b(?:\w{3,}ed|went|had|was|were|got|won|did|took|made|saw|met|found|lost|bought|came|left|ran|gave)\b"
)
_WILL = re.compile(
    r"\b(?:will|going to|gonna|plan\w*|hop(?:e|ing)|want)\b|['’]ll\b|\b(?:am|are|is|['’](?:m|re|s)) \w+ing\b"
)


def _bare_weekday(match: re.Match[str], said: date) -> _Found | None:
    """Returns the last Friday for `on Friday` in the past tense, the next one in the future tense, otherwise None."""
    over, to_come = _WAS.search(match.string) is not None, _WILL.search(match.string) is not None
    return None if over == to_come else _nearest(match, said, over)


def _span(match: re.Match[str], said: date) -> _Found | None:
    """Returns the time of `last week`, `next month`, `this year`."""
    which, what = match["which"].lower(), match["what"].lower()
    step = {"last": -1, "past": -1, "this past": -1, "this": 0, "next": 1, "this coming": 1, "coming": 1}[which]
    if what == "week":
        return ("this week" if not step else f"in the week {_side(step)} {written(said)}"), None, step
    if what == "weekend" and not step:
        saturday = said + timedelta(days=5 - said.weekday())
        return f"on the weekend of {written(saturday)}", None, max(0, (saturday - said).days)
    if what == "weekend":
        return f"on the weekend {_side(step)} {written(said)}", None, step
    if what == "month":
        return f"in {_month(said, step)}", None, step
    if what == "year":
        return f"in {said.year + step}", None, step
    if what in ("summer", "winter", "spring", "fall", "autumn") and step:
        return f"in the {what} {_side(step)} {written(said)}", None, step
    if what == "night" and step < 0:
        day = said - timedelta(days=1)
        return f"on the evening of {written(day)}", day, -1
    return None


def _ago(match: re.Match[str], said: date) -> _Found | None:
    """Returns the time of `three days ago`, `two weeks ago`, `a year ago`."""
    what = match["what"].lower()
    if match["some"]:
        return f"{match['some'].lower()} {what}s before {written(said)}", None, -1
    word = match["count"].lower()
    count = int(word) if word.isdigit() else NUMBERS[word]
    if match["about"] and what in ("month", "year"):
        return f"around {said.year - count if what == 'year' else _month(said, -count)}", None, -1
    if what == "day":
        day = said - timedelta(days=count)
        return f"on {written(day)}", day, -1
    if what == "week":
        return f"around {written(said - timedelta(weeks=count))}", None, -1
    if what == "weekend":
        return f"{count} weekend{'s' if count > 1 else ''} before {written(said)}", None, -1
    if what == "month":
        return f"in {_month(said, -count)}", None, -1
    return f"in {said.year - count}", None, -1


def _side(step: int) -> str:
    return "before" if step < 0 else "after"


def _month(said: date, step: int) -> str:
    months = said.year * 12 + said.month - 1 + step
    return f"{MONTHS[months % 12]} {months // 12}"


_WHICH = r"(?P<which>this past|this coming|last|past|next|this|coming)"
_RULES: tuple[tuple[re.Pattern[str], _WorkOut], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), work_out)
    for pattern, work_out in (
        (rf"{_BEFORE}\bthe day before yesterday\b", _offset(-2)),
        (
            r"\byesterday (?:morning|afternoon|evening|night)\b"
            r"|(?<!like )(?<!like just )(?<!like only )(?<!like it was )\byesterday\b(?!['’])",  # "feels like …"
            _offset(-1),
        ),
        (rf"{_BEFORE}\bthe day after tomorrow\b", _offset(2)),
        (r"\btomorrow (?:morning|afternoon|evening|night)\b|\btomorrow\b(?!['’])", _offset(1)),
        (r"\b(?:earlier )?today\b(?!['’])|\bthis (?:morning|afternoon|evening)\b", _offset(0)),
        (r"\btonight\b(?!['’])", _offset(0, "on the evening of {}")),
        (
            rf"{_BEFORE}(?:\b(?P<about>about|around|almost|nearly|over|roughly|like)\s+)?"
            rf"\b(?:(?P<some>a few|several|some|a couple of|a couple)|{_COUNT}(?: of)?) (?P<what>day|weekend|week"
            rf"|month|year)s? (?:ago|back)\b",
            _ago,
        ),
        (
            rf"\bon {_DAY}\b{_DATE}(?!['’]|, \d|s\b| (?:the|nights?|mornings?|evenings?|afternoons?|and|or|at|\d)\b)",
            _bare_weekday,
        ),
        (rf"{_BEFORE}\b{_WHICH} {_DAY}\b{_DATE}(?:\.(?= [a-z0-9]))?(?!['’])", _weekday),
        (
            rf"{_BEFORE}(?:\bthe )?\b{_WHICH} (?P<what>weekend|week|month|year|summer|winter|spring|fall|autumn"
            rf"|night)"
            r"\b(?!['’]s?\b)",
            _span,
        ),
    )
)
