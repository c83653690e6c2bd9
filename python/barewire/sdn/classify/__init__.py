# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Learning what a flow is: by what was announced, else by signatures, else by how it behaves. Pure."""
