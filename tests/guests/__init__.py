# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What emulated machines share: Debian's packages unpacked, a file system in memory, an interface into a lab's host."""
