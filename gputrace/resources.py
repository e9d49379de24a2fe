"""Finds the bundled formats (`parsers/`) and templates (`reports/`), in a checkout and in an install."""

from pathlib import Path

from gputrace.errors import BrokenInstallError

_PACKAGE = Path(__file__).parent


def _root() -> Path:
    bundled, checkout = _PACKAGE / "_bundled", _PACKAGE.parent
    if bundled.is_dir():
        return bundled
    # Without this guard an install would read site-packages/reports: somebody else's package.
    if (checkout / "pyproject.toml").is_file():
        return checkout
    raise BrokenInstallError(f"{bundled} is missing: install gputrace again")


def parsers_dir() -> Path:
    """Folder of the format descriptions, one TOML file a format."""
    return _root() / "parsers"


def reports_dir() -> Path:
    """Folder of the report templates, styles and the chart theme."""
    return _root() / "reports"
