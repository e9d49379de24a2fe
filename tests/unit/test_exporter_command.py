"""Addresses and the command line of the exporter."""

import sys

import pytest

from gputrace.errors import UsageError
from gputrace.live.exporter_command import exporter_command, parse_address
from tests.unit.test_layers import HEAVY, loaded_by


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("9435", "127.0.0.1", 9435),
        (":9435", "127.0.0.1", 9435),
        ("0.0.0.0:80", "0.0.0.0", 80),
        ("[::1]:0", "::1", 0),
        ("prover.local:65535", "prover.local", 65535),
    ],
)
def test_address(text: str, host: str, port: int) -> None:
    assert parse_address(text) == (host, port)


@pytest.mark.parametrize("text", ["", "host", "host:", "host:65536", "::1:9435", "[]:1", "a:-1", "a:1x", "a:²", "a: 1"])
def test_no_address(text: str) -> None:
    with pytest.raises(UsageError, match=r"HOST:PORT|brackets"):
        parse_address(text)


def test_command_starts_this_gputrace() -> None:
    command = exporter_command("-odd name", "127.0.0.1:0")
    assert command[:4] == [sys.executable, "-m", "gputrace", "export"]
    assert command[-2:] == ["--", "-odd name"]


def test_a_bad_address_is_refused_before_anything_starts() -> None:
    with pytest.raises(UsageError):
        exporter_command("capture", "nonsense")


def test_naming_the_command_loads_nothing_heavy() -> None:
    loaded = loaded_by("import gputrace.live.exporter_command")
    assert loaded & (HEAVY | {"prometheus_client", "typer", "rich"}) == set()
