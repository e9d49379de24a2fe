"""The language of `--fail-if`: figures compared with limits, joined by and, or, not and parentheses.

condition  = all { "or" all }
all        = one { "and" one }
one        = "not" one | "(" condition ")" | figure operator limit
operator   = ">" | ">=" | "<" | "<="
limit      = number | number "x"         (of AFTER's value; times BEFORE's value)
figure     = name [ "." statistic or cause ]
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gputrace.analysis.compare.figures import Figure, find
from gputrace.errors import UsageError

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>-?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)(?P<times>x(?![a-z0-9_]))?
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_-]+)?)
    | (?P<operator><=|>=|<|>)
    | (?P<bracket>[()])
    )""",
    re.VERBOSE,
)
_WORDS = ("and", "or", "not")


@dataclass(frozen=True)
class Limit:
    """`figure operator value`; `relative` where the value is a factor of BEFORE's."""

    figure: Figure
    operator: str
    value: float
    relative: bool
    text: str


@dataclass(frozen=True)
class Not:
    """True where its condition is false."""

    inner: "Condition"


@dataclass(frozen=True)
class Both:
    """True where both are (`word` and), or where one is (`word` or)."""

    word: str
    left: "Condition"
    right: "Condition"


Condition = Limit | Not | Both


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    start: int
    times: bool = False

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else repr(self.text)


def parse(text: str) -> Condition:
    """The condition that `text` says. Raises `UsageError` with the place of what is wrong in it."""
    return _Parser(text).whole()


def limits_of(condition: Condition) -> Iterator[Limit]:
    """The comparisons in a condition, from left to right."""
    if isinstance(condition, Limit):
        yield condition
    elif isinstance(condition, Not):
        yield from limits_of(condition.inner)
    else:
        yield from limits_of(condition.left)
        yield from limits_of(condition.right)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._scan())
        self._next = 0

    def _scan(self) -> Iterator[_Token]:
        at = 0
        while self._text[at:].strip():
            found = _TOKEN.match(self._text, at)
            if not found or not found.lastgroup:
                at += len(self._text[at:]) - len(self._text[at:].lstrip())
                raise self._error(at, f"{self._text[at]!r} means nothing here")
            kind = "number" if found["number"] else found.lastgroup
            said = found[kind]
            yield _Token("word" if said in _WORDS else kind, said, found.start(kind), bool(found["times"]))
            at = found.end()
        yield _Token("end", "", len(self._text.rstrip()))

    def _error(self, at: int, what: str) -> UsageError:
        return UsageError(f"--fail-if {self._text!r}, column {at + 1}: {what}")

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._token
        self._next += 1
        return token

    def whole(self) -> Condition:
        condition = self._any()
        if self._token.kind != "end":
            raise self._error(self._token.start, f"expected and, or, or the end, found {self._token}")
        return condition

    def _any(self) -> Condition:
        left = self._all()
        while self._token.text == "or":
            self._take()
            left = Both("or", left, self._all())
        return left

    def _all(self) -> Condition:
        left = self._one()
        while self._token.text == "and":
            self._take()
            left = Both("and", left, self._one())
        return left

    def _one(self) -> Condition:
        token = self._take()
        if token.text == "not":
            return Not(self._one())
        if token.text == "(":
            inner = self._any()
            if self._token.text != ")":
                raise self._error(self._token.start, f"expected ), found {self._token}")
            self._take()
            return inner
        if token.kind != "name":
            raise self._error(token.start, f"expected a figure, as mutex_held_ms.median, found {token}")
        return self._limit(token)

    def _limit(self, name: _Token) -> Limit:
        try:
            figure = find(name.text)
        except UsageError as error:
            raise self._error(name.start, str(error)) from None
        operator = self._take()
        if operator.kind != "operator":
            raise self._error(operator.start, f"expected >, >=, < or <=, found {operator}")
        number = self._take()
        if number.kind != "number":
            raise self._error(number.start, f"expected a number or a factor, as 900 or 1.05x, found {number}")
        text = self._text[name.start : number.start + len(number.text) + number.times]
        return Limit(figure, operator.text, float(number.text), number.times, " ".join(text.split()))
