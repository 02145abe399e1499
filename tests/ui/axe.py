"""axe-core, which checks a page for what keeps people with other devices out. It comes from npm: see the Makefile."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

from tests.ui.browser import Browser

SCRIPT = Path(sys.prefix) / "node_modules" / "axe-core" / "axe.min.js"
MISSING = f"axe-core is needed at {SCRIPT}; `make test` installs it if there is npm"

_RUN = """
const done = arguments[arguments.length - 1];
axe.run(document, { resultTypes: ["violations"] }).then(
  (found) => done(found.violations.map((each) => ({
    rule: each.id, help: each.help, nodes: each.nodes.slice(0, 4).map((node) => node.html.slice(0, 160)),
  }))),
  (error) => done([{ rule: "axe failed", help: String(error) }]));
"""


@cache
def source() -> str:
    if not SCRIPT.exists():
        raise RuntimeError(MISSING)
    return SCRIPT.read_text("utf-8")


def violations(browser: Browser) -> list[dict[str, Any]]:
    """What axe finds wrong with the page in the browser."""
    browser.run(source())
    found: Any = browser.driver.execute_async_script(_RUN)  # selenium does not say what it gives
    result: list[dict[str, Any]] = found
    return result
