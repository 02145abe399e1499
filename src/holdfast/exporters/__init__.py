"""Threads, written so that others can read them.

`export_jsonl` writes all that is stored, for another store; `export_otel` messages and model calls in the form of
OpenTelemetry's GenAI conventions; `export_markdown` and `export_html` what was said, for people.
"""

from holdfast.exporters.html import export_html as export_html
from holdfast.exporters.jsonl import export_jsonl as export_jsonl
from holdfast.exporters.markdown import export_markdown as export_markdown
from holdfast.exporters.otel import export_otel as export_otel
from holdfast.exporters.target import Exported as Exported
