# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Models of the limits and costs of communication; pure functions."""
