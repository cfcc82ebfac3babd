"""Amounts of some resources. A resource that is left out is different from an amount of 0."""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.resources import RESOURCE_NAMES, Amount, Resources


class PartialResources(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An amount for every named resource, None for a resource that is not named. Units as in `Resources`."""

    user_slots: Amount | None = None
    #: Hundredths of a core.
    cpu: Amount | None = None
    gpu: Amount | None = None
    #: Bytes.
    memory: Amount | None = None
    network: Amount | None = None

    @staticmethod
    def of(amounts: Resources) -> PartialResources:
        """Return the amounts, naming only the resources with more than 0."""
        user_slots, cpu, gpu, memory, network = (amount or None for amount in amounts.as_tuple())
        return PartialResources(user_slots, cpu, gpu, memory, network)

    def as_tuple(self) -> tuple[int | None, int | None, int | None, int | None, int | None]:
        return (self.user_slots, self.cpu, self.gpu, self.memory, self.network)

    def named(self) -> dict[str, int]:
        """Return the named amounts, in the order of resources."""
        return {
            name: amount for name, amount in zip(RESOURCE_NAMES, self.as_tuple(), strict=True) if amount is not None
        }

    @property
    def whole(self) -> Resources:
        """The amounts with 0 for resources that are not named."""
        return Resources(self.user_slots or 0, self.cpu or 0, self.gpu or 0, self.memory or 0, self.network or 0)


NOTHING: Final = PartialResources()


class OutOfBounds(msgspec.Struct, frozen=True):
    """An amount of a resource that breaks a bound."""

    resource: str
    amount: int
    bound: int
    #: True if the amount is above an upper bound, false if it is below a lower bound.
    is_above: bool


def out_of_bounds(amounts: Resources, least: PartialResources, most: PartialResources) -> OutOfBounds | None:
    """Return the first resource whose amount is above the bound in `most` or below the bound in `least`; None if there is none."""
    if least == NOTHING and most == NOTHING:
        return None
    figures = zip(RESOURCE_NAMES, amounts.as_tuple(), least.as_tuple(), most.as_tuple(), strict=True)
    for name, amount, lower, upper in figures:
        if upper is not None and amount > upper:
            return OutOfBounds(name, amount, upper, is_above=True)
        if lower is not None and amount < lower:
            return OutOfBounds(name, amount, lower, is_above=False)
    return None
