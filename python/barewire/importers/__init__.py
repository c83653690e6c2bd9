# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Imports what other benchmarks print as runs: OSU, IMB, NetPIPE, HPC Challenge, fabtests, nccl-tests.

One module for each tool; `output.py` is what they share, `runs.py` makes the run.
"""
