# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Barewire: carry MPI over plain Ethernet, measure what a transport gives a program, route by what a flow needs."""

__version__ = "0.1.0"
