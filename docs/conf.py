"""How Sphinx builds the documentation: offline, and with warnings as errors (`make docs`)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

import fmware  # noqa: E402

project = "FMware"
author = "the FMware authors"
release = version = fmware.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
# Pages also link to files of the repository, which are no pages.
suppress_warnings = ["myst.xref_missing"]

html_theme = "furo"
html_title = f"FMware {version}"
html_logo = html_favicon = "../fmware/service/page/icon.svg"
html_show_sourcelink = False
pygments_style, pygments_dark_style = "friendly", "github-dark"

autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
default_role = "literal"


def setup(app: Sphinx) -> None:
    """Write the pages that are generated before Sphinx looks for pages."""
    from reference_pages import write_pages

    app.connect("builder-inited", lambda _: write_pages(HERE / "reference"))
