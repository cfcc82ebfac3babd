"""The collector looks at young objects each so many messages, however many were freed meanwhile."""

from __future__ import annotations

import gc
import weakref

from headrace_allocator.links.young_objects import YoungObjects


class _Circle:
    def __init__(self) -> None:
        self.itself = self


def test_a_circle_is_freed_once_so_many_messages_were_handled() -> None:
    # By itself the collector does nothing here.
    gc.disable()
    try:
        young = YoungObjects(3)
        for _ in range(2):
            circle = weakref.ref(_Circle())
            young.note()
            young.note()
            assert circle() is not None
            young.note()
            assert circle() is None
    finally:
        gc.enable()
