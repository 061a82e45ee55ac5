"""``python -m heterps``."""

import sys

from heterps.cli.main import main

sys.exit(main())
