"""The documentation as static HTML: sphinx-build -W -n -b html docs docs/_build/html."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "feature-emergence"
release = metadata.version(project)
copyright = "the authors of feature-emergence, MIT licence"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "docstrings",
    "mathml",
    "variables",
]
exclude_patterns = ["_build"]
nitpicky = True
# Single backticks in docstrings are code, and links where a public name is meant.
default_role = "py:obj"
# Names of other libraries and of what is not public stay plain code.
nitpick_ignore_regex = [("py:obj", r"(?s).*"), ("py:exc", r"[A-Z]\w+"), ("py:class", r"mapping|str to tuple")]

myst_enable_extensions = ["dollarmath", "html_image"]
myst_heading_anchors = 4
# The notebook is committed executed: `python tests/docs/test_tutorial.py` renews it.
nb_execution_mode = "off"

# Modules that need torch are read without it, so that the extra `docs` alone builds these pages.
autodoc_mock_imports = ["torch"]
# Docstrings say types in words; annotations would repeat them.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_param = False
napoleon_use_rtype = False

# What is copied can be run: prompts and output are left out.
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = project
html_math_renderer = "mathml"
html_static_path = ["static"]
html_css_files = ["formulas.css"]
html_copy_source = False
html_show_copyright = False
