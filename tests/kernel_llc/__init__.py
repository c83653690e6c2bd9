# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A Linux kernel's AF_LLC sockets as a foreign oracle for our LLC."""
