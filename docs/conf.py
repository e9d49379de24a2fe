"""How Sphinx builds the manual: `make docs`. Nothing in the pages is loaded from elsewhere."""

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
