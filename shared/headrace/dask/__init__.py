"""A Dask cluster whose workers are jobs.

    with headrace.dask.HeadraceCluster(pool="research", cpu=4, memory="8G") as cluster:
        cluster.adapt(maximum=20)
        with dask.distributed.Client(cluster):
            ...

The scheduler runs in this process. Each worker is an operation with one job, so that a worker can be started and stopped alone.
"""

from headrace.installation.extras import require

require("dask", "headrace.dask")
# The packages of the extra are imported only now, so that a missing package is named with its extra.
from headrace.dask.cluster import HeadraceCluster  # noqa: E402

__all__ = ["HeadraceCluster"]
