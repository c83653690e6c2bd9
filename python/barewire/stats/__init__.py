# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Statistics of launches; pure functions. The experimental unit is a launch, never an iteration inside one."""
