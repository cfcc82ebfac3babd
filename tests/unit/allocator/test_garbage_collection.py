"""The collector looks at young objects each so many messages, however many were freed meanwhile."""

from __future__ import annotations

import gc
import weakref

from headrace_allocator.links.garbage_collection import YoungObjects


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
        gc.unfreeze()
        gc.enable()


def test_what_was_in_use_at_a_look_is_never_looked_at_again() -> None:
    gc.disable()
    try:
        young = YoungObjects(1)
        lasting = _Circle()
        young.note()
        assert not any(one is lasting for one in gc.get_objects())
        young.note()
        assert not any(one is lasting for one in gc.get_objects())
    finally:
        gc.unfreeze()
        gc.enable()
