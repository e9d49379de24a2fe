"""Signs and percents as every page writes them: a true minus, no sign at a zero, the percent sign at its number."""

import re

# A hyphen before a number, where it joins no words and no numbers.
_MINUS = re.compile(r"(?<![\w.,)-])-(?=\.?\d)")
_SIGNED_ZERO = re.compile(r"(?<![\w.])[+\N{MINUS SIGN}](?=0(?:\.0+)?(?![\d.]))")
_PERCENT = re.compile(r"(?<=\d)\s%")


def minus(text: str) -> str:
    """The text with its numbers' signs and percents written so."""
    return _SIGNED_ZERO.sub("", _PERCENT.sub("%", _MINUS.sub("\N{MINUS SIGN}", text)))
