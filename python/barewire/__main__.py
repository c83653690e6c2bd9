# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Entry point of `python -m barewire`."""

from barewire.cli import main

main()
