# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Classification of flows: by announcements, else by signatures, else by behaviour. Pure."""
