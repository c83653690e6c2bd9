# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Exercises for a course on networks or parallel computing, and the checker of a student's answers."""
