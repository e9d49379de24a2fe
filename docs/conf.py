"""How Sphinx builds the manual: `make docs`. Nothing in the pages is loaded from elsewhere."""

from pathlib import Path

from sphinx.application import Sphinx

from gputrace import __version__

project = "gputrace"
author = "the gputrace authors"
version = release = __version__

# myst_nb reads Markdown as myst_parser does, and notebooks besides. Their outputs are those that a test made.
extensions = ["myst_nb"]
nb_execution_mode = "off"
myst_heading_anchors = 3
myst_enable_extensions = ["attrs_inline"]
root_doc = "index"
exclude_patterns = ["_build", "generate", "images", "**.ipynb_checkpoints"]
nitpicky = True

html_theme = "furo"
html_title = f"gputrace {version}"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_static_path: list[str] = []

# Pages that the table of contents names and that may be missing.
NOT_YET = ("exports", "fleet", "python-api", "terminal", "tutorial")


def _without_missing(app: Sphinx, page: str, source: list[str]) -> None:
    if page == root_doc:
        missing = [name for name in NOT_YET if not list(Path(app.srcdir).glob(f"{name}.*"))]
        source[0] = "\n".join(line for line in source[0].split("\n") if line not in missing)


def setup(app: Sphinx) -> None:
    """Leaves out of the table of contents what is not there."""
    app.connect("source-read", _without_missing)
