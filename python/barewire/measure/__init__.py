# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs of native programs: their launches, order, hosts and results."""
