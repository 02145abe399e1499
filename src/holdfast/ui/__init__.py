"""The web UI of a store. `app` is an ASGI application to mount; `holdfast ui` serves it on this machine."""

from __future__ import annotations

from holdfast.ui.application import app as app
