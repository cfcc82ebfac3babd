"""The table of all endpoints. The routes and the description of the API are made from it."""

from __future__ import annotations

from typing import Final

from headrace_web.api import nodes, operations, people, pools, preemptions, tokens

ENDPOINTS: Final = (
    *operations.ENDPOINTS,
    *pools.ENDPOINTS,
    *preemptions.ENDPOINTS,
    *nodes.ENDPOINTS,
    *people.ENDPOINTS,
    *tokens.ENDPOINTS,
)
