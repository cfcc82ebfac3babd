"""Operations that changed since the update before. The next one need not look at all others. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from headrace.ids import OperationId

#: Of more than so many a look at all costs no more.
_MOST: Final = 64


class News:
    """Names of operations of which anything changed. They are counted no further where they are many."""

    def __init__(self) -> None:
        #: True for those that came, in the order in which they came. None: there are too many to name.
        self._of: dict[OperationId, bool] | None = None

    def changed(self, names: Iterable[OperationId]) -> None:
        """Something became known of operations that were there, or they went."""
        if self._of is not None:
            for name in names:
                self._of.setdefault(name, False)
            self._bound()

    def came(self, name: OperationId) -> None:
        """An operation stands behind all others now, whether or not there was one of its name before."""
        if self._of is not None:
            self._of.pop(name, None)
            self._of[name] = True
            self._bound()

    def anything(self) -> None:
        """All may be different."""
        self._of = None

    def take(self) -> Mapping[OperationId, bool] | None:
        """Returns what there is since this was last asked, and begins anew. None: anything may be different."""
        of, self._of = self._of, {}
        return of

    def _bound(self) -> None:
        if self._of is not None and len(self._of) > _MOST:
            self._of = None
