# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reports: tables on the terminal and one self-contained HTML file per run."""
