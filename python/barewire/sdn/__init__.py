# SPDX-License-Identifier: Apache-2.0 OR MIT
"""One network for HPC and Big Data: a controller that routes each traffic profile by its own strategy."""
