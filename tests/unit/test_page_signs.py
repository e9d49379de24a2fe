"""Signs and percents as pages write them."""

import pytest

from gputrace.render.page.signs import minus


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("-0%", "0%"),
        ("+0.0 s", "0.0 s"),
        ("-0.5%", "\N{MINUS SIGN}0.5%"),
        ("+2.2 %", "+2.2%"),
        ("under 1 % of a hold", "under 1% of a hold"),
        ("(-0.58, -0.88 to -0.17)", "(\N{MINUS SIGN}0.58, \N{MINUS SIGN}0.88 to \N{MINUS SIGN}0.17)"),
        ("snap-1000-42 and 2026-11-29", "snap-1000-42 and 2026-11-29"),
        ("+0.05", "+0.05"),
    ],
)
def test_signs(text: str, written: str) -> None:
    assert minus(text) == written
