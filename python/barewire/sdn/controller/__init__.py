# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The controller: discovers the network, routes each flow, installs and moves its rules without packet loss."""
