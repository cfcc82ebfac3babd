"""The operations that changed since the previous update, so that the next update need not look at all operations. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from headrace.ids import OperationId

#: Largest number of changed operations that are recorded. If more operations have changed, an update that looks at all operations takes no
#: longer.
_MOST: Final = 64


class News:
    """Records the names of changed operations, unless there are too many."""

    def __init__(self) -> None:
        #: The changed operations: True for an operation that was added, False for an operation that changed or ended. Added operations are
        #: in the order of arrival. None: any operation may have changed, or too many operations have.
        self._of: dict[OperationId, bool] | None = None

    def changed(self, names: Iterable[OperationId]) -> None:
        """Record that known operations changed or ended."""
        if self._of is not None:
            for name in names:
                self._of.setdefault(name, False)
            self._bound()

    def came(self, name: OperationId) -> None:
        """Record that an operation was added, behind all other operations. It may have the name of an operation that has ended."""
        if self._of is not None:
            self._of.pop(name, None)
            self._of[name] = True
            self._bound()

    def anything(self) -> None:
        """Record that any operation may have changed."""
        self._of = None

    def take(self) -> Mapping[OperationId, bool] | None:
        """Return the operations that changed since the last call, and start over. None: any operation may have changed."""
        of, self._of = self._of, {}
        return of

    def _bound(self) -> None:
        if self._of is not None and len(self._of) > _MOST:
            self._of = None
