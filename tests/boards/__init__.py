# SPDX-License-Identifier: Apache-2.0 OR MIT
"""An emulated arm64 board: Debian's kernel and Open MPI, with our programs built for it."""
