"""The table of all endpoints. The routes and the description of the API are made from it."""

from __future__ import annotations

from typing import Final

from headrace_web.api import nodes, operations, people, pools

ENDPOINTS: Final = (*operations.ENDPOINTS, *pools.ENDPOINTS, *nodes.ENDPOINTS, *people.ENDPOINTS)
