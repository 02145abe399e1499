"""Threads, written so that others can read them: `export_jsonl(hf, path)`."""

from holdfast.exporters.jsonl import Exported as Exported
from holdfast.exporters.jsonl import export_jsonl as export_jsonl
