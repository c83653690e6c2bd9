# SPDX-License-Identifier: Apache-2.0 OR MIT
"""OpenFlow 1.3: messages as values, their bytes by os-ken's codec, one session per switch, and its asyncio shell."""
