"""`python -m holdfast`: the command line where no script is installed."""

import sys

from holdfast.cli.main import main

sys.exit(main())
