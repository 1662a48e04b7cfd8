"""Sphinx: Markdown pages, the API from docstrings."""

project = "whet"
author = "The whet developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
default_role = "code"  # single backticks in docstrings
napoleon_google_docstring = False
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "whet"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_type_aliases = {"ArrayLike": "ArrayLike"}
exclude_patterns = ["results", "examples"]
