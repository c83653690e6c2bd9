# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs on disk: their description, raw samples, and the series derived from these."""
