# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The live page of a controller: its state as events, and the page that shows them."""
