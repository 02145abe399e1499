"""Export threads to files.

`export_jsonl` writes everything that is stored, to be imported into another store. `export_otel` writes messages and
model calls in the form of OpenTelemetry's GenAI conventions. `export_markdown` and `export_html` write transcripts.
"""

from holdfast.exporters.jsonl import export_jsonl as export_jsonl
from holdfast.exporters.otel import export_otel as export_otel
from holdfast.exporters.target import Exported as Exported
from holdfast.exporters.transcript import export_html as export_html
from holdfast.exporters.transcript import export_markdown as export_markdown
