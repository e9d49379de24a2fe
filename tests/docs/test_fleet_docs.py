"""docs/fleet.md says what `gputrace fleet` does."""

import inspect
import re
from typing import get_args

from gputrace.analysis.compare.figures import MATTERS_ABSOLUTE, MATTERS_RELATIVE
from gputrace.analysis.thresholds import MIN_CALLS
from gputrace.commands.fleet import fleet_table
from gputrace.errors import ClusterError
from gputrace.fleet.analyse import DEFAULT_MOST_BYTES
from gputrace.fleet.deploy import MIN_PAIRS
from gputrace.fleet.outliers import LEAST_SPREAD, MIN_GPUS
from gputrace.fleet.ranking import SUPPORTED_SHARE
from gputrace.fleet.result import ChangeVerdict, TrendVerdict
from gputrace.fleet.statistics import LEAST_CUT, outlier_cut
from gputrace.fleet.summary import FailureKind
from gputrace.fleet.trends import FOLLOWED_SHARE, MIN_DAYS
from tests.captures import ROOT

FLAT = re.sub(r"\s+", " ", (ROOT / "docs" / "fleet.md").read_text())


def test_every_option_is_there() -> None:
    for name in inspect.signature(fleet_table).parameters:
        if name not in ("captures", "force"):
            assert f"--{name.replace('_', '-')}" in FLAT, name


def test_thresholds_and_words_are_those_of_the_code() -> None:
    for said in (
        f"with {MIN_CALLS} calls or more, if there are {MIN_GPUS} of them or more",
        f"never below {LEAST_SPREAD * 100:g} point",
        f"They label beyond {LEAST_CUT}",
        f"10 measures give {outlier_cut(8, 0.005):.0f}, against {outlier_cut(50, 0.005):.0f} for 50 GPUs",
        f"From {MIN_DAYS} days on",
        f"causes with {FOLLOWED_SHARE * 100:g} % of the lost seconds",
        f"with {MIN_PAIRS} hosts or more",
        f"at least {SUPPORTED_SHARE * 100:g} % of them",
        f"less than {MATTERS_ABSOLUTE['share'] * 100:g} point of a share, or {MATTERS_RELATIVE * 100:g} % of a rate",
        f"`--max-capture-gb` ({DEFAULT_MOST_BYTES / 1e9:g})",
        f"{ClusterError.exit_code} the workers are not to be had",
        f"({', '.join(get_args(FailureKind))})",
        f"({', '.join(get_args(TrendVerdict))})",
        f"({', '.join(get_args(ChangeVerdict))})",
    ):
        assert said in FLAT, said
