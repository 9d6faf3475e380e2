"""Settings of the website that `sphinx-build -W docs site` makes of this folder. Nothing is loaded from other hosts."""

from mcp_server import __version__

project = "context-manager-mcp"
author = "the context-manager-mcp authors"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 3
nitpicky = False
html_theme = "furo"
html_title = project
html_show_sphinx = False
default_role = "literal"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autoclass_content = "class"
