# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The shuffle of a job replayed with real bytes over TCP between hosts."""
