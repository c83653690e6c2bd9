# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Replay of a job's shuffle with real data over TCP between hosts."""
