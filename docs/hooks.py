"""Docstrings speak Sphinx's roles (``:func:`name` ``); the site turns them into its own links."""

from __future__ import annotations

import re
from typing import Any

ROLE = re.compile(r":(?:func|class|meth|mod|data):<code>~?([\w.]+)</code>")


def on_page_content(html: str, **_: Any) -> str:
    """Page with each role as a link, where its target is on the site, else as code."""
    return ROLE.sub(r'<autoref identifier="\1" optional><code>\1</code></autoref>', html)
