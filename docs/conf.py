"""Configuration of the documentation site: Sphinx, MyST Markdown and the Furo theme. `make docs` builds it."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]

project = "specbench"
author = "The specbench authors"
project_copyright = author
release = metadata.version("specbench")
version = release

extensions = ["myst_parser", "sphinx_copybutton", "sphinx_llms_txt"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
nitpicky = True

# Headings get the anchors that GitHub gives them, so that a link works in both places.
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_block", "colon_fence"]

html_theme = "furo"
html_title = "specbench"
html_static_path = ["_static"]
html_css_files = ["specbench.css"]
html_theme_options = {"navigation_with_keys": True}
html_copy_source = True
html_show_sphinx = False

# Copy commands without their prompt, and without the output below them.
copybutton_prompt_text = "$ "
copybutton_line_continuation_character = "\\"

llms_txt_summary = "specbench measures whether speculative decoding pays, for your traffic, model and GPUs."
llms_txt_full_max_size = 40_000

_LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#]+\.md)(?:#[^)]*)?\)")


def _name_pages_of_the_repository(app: Sphinx, docname: str, source: list[str]) -> None:
    """Replace links to Markdown files outside docs/, which are no pages of the site, with their path."""
    folder = Path(app.env.doc2path(docname)).parent

    def replaced(link: re.Match[str]) -> str:
        file = (folder / link[2]).resolve()
        if not file.is_file() or file.is_relative_to(app.srcdir):
            return link[0]  # a page of the site, or a broken link, which MyST then reports
        return f"{link[1]} (`{file.relative_to(ROOT)}`)"

    source[0] = _LINK.sub(replaced, source[0])


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _name_pages_of_the_repository)
