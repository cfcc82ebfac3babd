"""A backend of joblib: each batch of calls runs as a job.

headrace.joblib.register()
with joblib.parallel_config(backend="headrace", pool="research", cpu=2):
    results = joblib.Parallel()(joblib.delayed(simulate)(seed) for seed in range(1000))
"""

from headrace.joblib.backend import HeadraceBackend, register

__all__ = ["HeadraceBackend", "register"]
