"""Mathematics as MathML, which browsers draw themselves: no script, no fonts to fetch, the same page offline.

Docutils, on which Sphinx stands, has the translator; this hands it the formulas of Sphinx's HTML builder.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator

#: Sizes of brackets; the translator knows those of left and right ones alone, \Bigl( and \Bigr).
_LEFT = re.compile(r"(\\[bB]igg?)(?=[(\[])")
_RIGHT = re.compile(r"(\\[bB]igg?)(?=[)\]])")
_OTHER = re.compile(r"\\[bB]igg?(?![a-zA-Z])")
#: A fraction with a part of one sign without braces: the translator reads 12 as one number.
_FIRST = re.compile(r"(\\[dt]?frac)\s*([0-9a-zA-Z]|\\[a-zA-Z]+)")
_SECOND = re.compile(r"(\\[dt]?frac\{[^{}]*\})\s*([0-9a-zA-Z]|\\[a-zA-Z]+)(?![a-zA-Z{])")
#: An accent over a letter with an index: the translator sets the index below the letter.
_ACCENT = re.compile(
    r"<munderover>\s*(<mi[^>]*>[^<]*</mi>)((?:(?!<munderover>).)*?)(<mo[^>]*>[ˆ˜~¯ˉ‾˙¨→]</mo>)\s*</munderover>",
    re.DOTALL,
)
#: The translator leaves no space between a name such as ln and its neighbours, and browsers put some around bars.
_BEFORE = re.compile(r"(?<=</mi>|</mn>)(?=\s*<mi>(?:ln|det)</mi>\s*<mo>&ApplyFunction;)|(?<=\)</mo>)(?=\s*<mi>ln</mi>)")
_AFTER = re.compile(r"(?<=<mo>&ApplyFunction;</mo>)(?!\s*<mo[^>]*>[(\[])")
_BAR = re.compile(r'<mo stretchy="false">(?=\|</mo>)')
_SPACE = '<mspace width="0.1667em"></mspace>'

logger = logging.getLogger(__name__)


def translated(node: nodes.Element, *, as_block: bool) -> str:
    """Return a formula as MathML; one that cannot be translated is a warning, and stays as its source."""
    source = _OTHER.sub("", _RIGHT.sub(r"\1r", _LEFT.sub(r"\1l", node.astext())))
    source = _SECOND.sub(r"\1{\2}", _FIRST.sub(r"\1{\2}", source))
    try:
        formula = str(tex2mathml(source, as_block=as_block))
        formula = _BEFORE.sub(_SPACE, _ACCENT.sub(r"<msub><mover>\1\3</mover>\2</msub>", formula))
        return _BAR.sub('<mo stretchy="false" lspace="0" rspace="0">', _AFTER.sub(_SPACE, formula))
    except MathError as error:
        logger.warning("formula: %s in %s", error, node.astext(), location=node)
        return ""


def inline(self: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a line."""
    self.body.append(translated(node, as_block=False))
    raise nodes.SkipNode


def block(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a displayed formula."""
    self.body.append(f'<div class="formula">{translated(node, as_block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer under the name "mathml"."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
