"""How the exporter is started, for whoever starts it as a process of its own. Loads nothing heavy."""

import os
import sys

from gputrace.errors import UsageError

LOCALHOST = "127.0.0.1"
DEFAULT_ADDRESS = f"{LOCALHOST}:9435"


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of HOST:PORT, :PORT or PORT; without a host, this host only.

    An IPv6 address stands in brackets. Port 0 is any free one. Raises `UsageError` where it is none of these.
    """
    host, colon, port = text.strip().rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    # isdigit takes other scripts' digits and superscripts, which int does not.
    if not (port.isascii() and port.isdigit() and int(port) <= 65535) or (":" in host and not bracketed):
        raise UsageError(f"--prometheus {text}: write it as HOST:PORT, for example {DEFAULT_ADDRESS}")
    if bracketed and not host:
        raise UsageError(f"--prometheus {text}: no address between the brackets")
    return (host if colon and host else LOCALHOST), int(port)


def exporter_command(capture: str, address: str) -> list[str]:
    """The command line of an exporter that serves `capture` at `address`. Raises `UsageError` for a bad address."""
    parse_address(address)
    return [sys.executable, "-m", "gputrace", "export", "--prometheus", address, "--", capture]


def use_one_core() -> None:
    """Keeps the libraries of this process to one thread each, so that a prover keeps its cores. Call it before they
    are loaded; what the environment says already stands.
    """
    for name in ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
