"""A backend of joblib: each batch of calls runs as a job.

headrace.joblib.register()
with joblib.parallel_config(backend="headrace", pool="research", cpu=2):
    results = joblib.Parallel()(joblib.delayed(simulate)(seed) for seed in range(1000))
"""

from headrace.installation.extras import require

require("joblib", "headrace.joblib")
# The packages of the extra are imported only now, so that a missing package is named with its extra.
from headrace.joblib.backend import HeadraceBackend, register  # noqa: E402

__all__ = ["HeadraceBackend", "register"]
