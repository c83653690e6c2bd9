# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Labs under Debian's kernel, which has modules that other kernels lack."""
