# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What people read: tables on the terminal and one self-contained HTML file per run."""
