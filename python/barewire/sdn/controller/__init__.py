# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The controller: learns the network, gives each flow a path, lays and moves its rules without losing a packet."""
