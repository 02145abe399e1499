"""The web UI of a store. `app` is an ASGI application to mount; `serve` serves it on this machine, with a token."""

from __future__ import annotations

from holdfast.ui.asgi import app as app
from holdfast.ui.asgi import serve as serve
