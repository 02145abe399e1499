"""Import threads from other systems: `import_from(hf, "langgraph-sqlite", path)`."""

from holdfast.importers.formats import FORMATS as FORMATS
from holdfast.importers.formats import Format as Format
from holdfast.importers.formats import import_from as import_from
from holdfast.importers.frame import Finding as Finding
from holdfast.importers.frame import Progress as Progress
from holdfast.importers.frame import Report as Report
from holdfast.importers.options import Options as Options
