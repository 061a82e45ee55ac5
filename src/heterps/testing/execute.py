"""Become another program: ``python -m heterps.processes heterps.testing.execute PROGRAM …``.

What the kernel was asked to do when the parent ends stays in force.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
