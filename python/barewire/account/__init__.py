# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Where the bytes of a capture went: by layer, by phase of the job, and by pair of hosts."""

from barewire.account.accounts import Accounts
from barewire.account.read import account

__all__ = ["Accounts", "account"]
