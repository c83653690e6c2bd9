# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The controller's HTTP API: announcing jobs, inspecting the network, setting the policy; and a client for it."""
