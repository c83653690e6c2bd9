# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Experiments on real switches: rings and shuffles under several strategies, with a non-blocking star as reference."""
