"""Import threads from other systems: `import_from(hf, "langgraph-sqlite", path)`."""

from holdfast.importers.frame import ImportFinding as ImportFinding
from holdfast.importers.frame import Options as Options
from holdfast.importers.frame import Progress as Progress
from holdfast.importers.frame import Report as Report
from holdfast.importers.kinds import FORMATS as FORMATS
from holdfast.importers.kinds import Format as Format
from holdfast.importers.kinds import checked_format as checked_format
from holdfast.importers.kinds import import_from as import_from
