# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Makes `python -m barewire` the command line."""

from barewire.cli import main

main()
