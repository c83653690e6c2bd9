# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Models of what a network can give; pure functions."""
