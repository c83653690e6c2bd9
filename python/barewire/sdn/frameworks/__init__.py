# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Dask and Spark: their shuffles announced to a controller, and both as jobs in a lab."""

FRAMEWORKS = ("dask", "spark")
