# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What emulated machines of tests share beside `barewire.guests`: an interface into a lab's host."""
