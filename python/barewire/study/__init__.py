# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The published studies, run again: plans, their steps, and what becomes of each claim."""
