# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the tools share: where Barewire is, and how they end."""

import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# The tools run without an installed package.
sys.path.insert(0, str(ROOT / "python"))

BAREWIRE = str(ROOT / "bin" / "barewire")


def exit_code(main: Callable[[], int]) -> int:
    """Run a tool; return its exit code. An error that a user can mend is a message."""
    from barewire.errors import BarewireError

    try:
        return main()
    except BarewireError as error:
        print(f"{Path(sys.argv[0]).stem}: {error}", file=sys.stderr)
        return error.exit_code
