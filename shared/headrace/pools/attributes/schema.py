"""Attributes: a table of what can be set on a Struct, which serves to parse, write and explain changes.

Pure. A change is a map from keys to values. A key is an attribute's name, one of its aliases, or a path to a part of
its value: `integral_guarantees/resource_flow/cpu`, or the same with dots. A value of None resets the attribute, or its
part, to the default. Any other value replaces the whole old value of the attribute or part.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

import msgspec

from headrace.errors import BadInput, UnknownKey
from headrace.pools.attributes.kinds import DEEPEST, Defects, Kind
from headrace.pools.attributes.map_kinds import Data, ResourceAmounts
from headrace.suggestions import hint, is_misspelt, near

#: Upper bound of the attributes that a message lists if none is similar to the unknown key.
_MOST_LISTED = 12


class Who(enum.StrEnum):
    """The right that is needed to set an attribute."""

    #: The right `write` on the pool.
    USER = "user"
    #: The right `administer` on the pool.
    ADMINISTRATOR = "administrator"


class Support(enum.StrEnum):
    """Whether an attribute has an effect, and which."""

    IN_FORCE = "in force"
    #: Information for people, without any other effect.
    DATA = "for people to read"
    #: Accepted, stored and ignored: it concerns something that Headrace does not have, such as the disk of a node as a
    #: resource.
    ABSENT = "not supported"
    #: A bound on how old or slow something may be. Headrace always meets it.
    MET = "met anyway"


@dataclass(frozen=True)
class Attribute:
    """One value that can be set."""

    name: str
    kind: Kind
    help: str
    #: Default in words, if the default value of the Struct does not show what applies.
    default: str = ""
    who: Who = Who.USER
    support: Support = Support.IN_FORCE
    #: Why the attribute is not supported; empty if it is supported.
    reason: str = ""
    #: Other names of the attribute; setting it under two names at the same time is refused.
    aliases: tuple[str, ...] = ()
    #: Former names; each is read as if it were the present name.
    renamed: tuple[str, ...] = ()
    #: True if a preset may hold the attribute.
    preset: bool = False
    group: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases, *self.renamed)

    @property
    def why_ignored(self) -> str:
        """The text that says that the attribute is not supported, with the reason."""
        return f"{Support.ABSENT}: {self.reason}"


class Changed(msgspec.Struct, frozen=True):
    """The result of a change."""

    value: Any
    #: Names of the attributes that the change mentions.
    touched: frozenset[str] = frozenset()
    #: Keys that name no attribute and were stored anyway.
    unknown: tuple[str, ...] = ()


#: Number of unknown or unusable keys of one map after which its other keys are not read. Each such key costs a comparison
#: with the names of all attributes.
_MOST_WRONG_KEYS: Final = 100


def split_key(key: str) -> list[str]:
    """Return the parts of a key: split at `/` if the key contains one, else at dots."""
    return key.split("/") if "/" in key else key.split(".")


class Schema:
    """The attributes of one Struct. The Struct has a field of the same name for each attribute."""

    def __init__(
        self,
        of: type[msgspec.Struct],
        attributes: Sequence[Attribute],
        *,
        keeps_unknown: bool = False,
        never: Mapping[str, str] | None = None,
    ) -> None:
        """Make the table.

        With `keeps_unknown`, keys that name no attribute, and are not misspelt names, are stored in the field `unrecognized`.
        `never` has the keys that may not be set, each with the key that was probably meant.
        """
        self.of = of
        self.attributes = {attribute.name: attribute for attribute in attributes}
        self._keeps_unknown = keeps_unknown
        self._never = never or {}
        self._default = of()

    @cached_property
    def names(self) -> dict[str, Attribute]:
        """The attributes by each of their names, aliases included."""
        return {name: attribute for attribute in self.attributes.values() for name in attribute.names}

    def default(self, name: str) -> Any:
        """Return the value of an attribute that is not set."""
        return getattr(self._default, name)

    def is_set(self, value: msgspec.Struct, name: str) -> bool:
        """True if the attribute differs from its default."""
        return bool(getattr(value, name) != self.default(name))

    @cached_property
    def _absent(self) -> list[tuple[str, str, Any]]:
        absent = (each for each in self.attributes.values() if each.support is Support.ABSENT)
        return [(each.name, each.why_ignored, self.default(each.name)) for each in absent]

    @cached_property
    def _partly_absent(self) -> list[tuple[str, Schema]]:
        """Name and schema of each map that is supported, but has parts that are not supported."""
        maps = ((each, each.kind.schema) for each in self.attributes.values() if isinstance(each.kind, Record))
        return [
            (each.name, schema)
            for each, schema in maps
            if each.support is not Support.ABSENT and (schema._absent or schema._partly_absent)
        ]

    def ignored(self, value: msgspec.Struct) -> list[tuple[str, str]]:
        """Return the reason and the name of each attribute that is set and not supported. An attribute in a map is named `map/name`."""
        found = [(why, name) for name, why, usual in self._absent if getattr(value, name) != usual]
        for place, schema in self._partly_absent:
            inner = getattr(value, place)
            if inner is not None:
                found += [(why, f"{place}/{name}") for why, name in schema.ignored(inner)]
        return found

    def changed(self, before: msgspec.Struct, changes: object, place: str = "") -> Changed:
        """Return `before` with the changes made. Raises `Defects` with everything that cannot be used."""
        changed, problems = self.usable(before, changes, place)
        if problems:
            raise Defects(problems)
        return changed

    def usable(self, before: msgspec.Struct, changes: object, place: str = "") -> tuple[Changed, list[BadInput]]:
        """Return `before` with the usable changes made, and the problems of the other changes."""
        work = _Work(self, before, place)
        if isinstance(changes, Mapping):
            for key, value in changes.items():
                if work.wrong_keys >= _MOST_WRONG_KEYS:
                    wrong = f"{work.wrong_keys} of {len(changes)} keys are unknown or have unusable values"
                    work.problems.append(BadInput.because(place or "settings", f"{wrong}; the rest was not read"))
                    break
                work.set(str(key), value)
        else:
            work.problems.append(BadInput(place or "settings", changes, "a map of attributes"))
        return work.done(), work.problems

    def written(self, value: msgspec.Struct) -> dict[str, object]:
        """Return the values that are set, as a person writes them. `changed` turns them into the same Struct again."""
        spelled: Mapping[str, str] = getattr(value, "spelled", {})
        written = {
            spelled.get(name, name): attribute.kind.write(getattr(value, name))
            for name, attribute in self.attributes.items()
            if self.is_set(value, name)
        }
        return written | getattr(value, "unrecognized", {})

    def refuse_unknown(self, key: str, value: object, place: str) -> UnknownKey:
        """Return the error for a key that names no attribute. The error quotes the value, or the key if the value is None."""
        value = key if value is None else value
        meant = self._never.get(key)
        if meant:
            return UnknownKey(place, value, f"did you mean {meant}?")
        return UnknownKey(place, value, hint(key, self.names, most_listed=_MOST_LISTED))

    def keeps(self, key: str) -> bool:
        """True if an unknown key is stored. A misspelt key is not."""
        may_keep = self._keeps_unknown and bool(key) and key not in self._never
        return may_keep and not _is_misspelt(key, tuple(self.names))

    def is_in_large_map(self, key: str) -> bool:
        """True if a key names a part of a map that may have any number of keys. Such a map is copied for each change of a part."""
        head, *path = split_key(key)
        attribute = self.names.get(head)
        return bool(path) and not (attribute and isinstance(attribute.kind, Record | ResourceAmounts))

    def similar(self, key: str) -> Sequence[str]:
        """Return the names that are most similar to an unknown key, best first."""
        return _near(key, tuple(self.names))


# The cache pays off for an import that names the same unknown key in each of 5,000 pools: comparing a key with all names takes 0.3 ms.
@lru_cache(maxsize=1_000)
def _is_misspelt(key: str, names: tuple[str, ...]) -> bool:
    return is_misspelt(key, names)


@lru_cache(maxsize=1_000)
def _near(key: str, names: tuple[str, ...]) -> Sequence[str]:
    return tuple(near(key, names))


class _Work:
    """One change that is being applied."""

    def __init__(self, schema: Schema, before: msgspec.Struct, place: str) -> None:
        self._schema = schema
        self._place = place
        self._values: dict[str, Any] = {name: getattr(before, name) for name in before.__struct_fields__}
        self._spelled = dict(self._values.get("spelled", {}))
        self._said: dict[str, str] = {}
        self._unknown: list[str] = []
        self.problems: list[BadInput] = []

    @property
    def wrong_keys(self) -> int:
        """Number of problems, and of keys that name no attribute."""
        return len(self.problems) + len(self._unknown)

    def set(self, key: str, value: object) -> None:
        head, *path = split_key(key)
        place = ".".join(part for part in (self._place, head, *path[:DEEPEST]) if part)
        try:
            if len(path) > DEEPEST:
                many = f"the key has {len(path) + 1} parts; at most {DEEPEST + 1} are allowed"
                raise BadInput.because(place, many)
            attribute = self._schema.names.get(head)
            if attribute is None:
                self._keep(head, path, value, place)
            else:
                self._set(attribute, head, path, value, place)
        except Defects as defects:
            self.problems.extend(defects.problems)
        except BadInput as problem:
            self.problems.append(problem)

    def done(self) -> Changed:
        if "spelled" in self._values:
            self._values["spelled"] = self._spelled
        return Changed(type(self._schema.of())(**self._values), frozenset(self._said), tuple(self._unknown))

    def _set(self, attribute: Attribute, head: str, path: list[str], value: object, place: str) -> None:
        name = attribute.name
        self._refuse_two_spellings(attribute, head, value, place)
        self._said[name] = head
        default = self._schema.default(name)
        if path:
            self._values[name] = attribute.kind.changed(self._values[name], path, value, place)
        else:
            self._values[name] = default if value is None else attribute.kind.read(value, place)
        if head in attribute.aliases and self._values[name] != default:
            self._spelled[name] = head
        else:
            self._spelled.pop(name, None)

    def _refuse_two_spellings(self, attribute: Attribute, head: str, value: object, place: str) -> None:
        name = attribute.name
        said = self._said.get(name, head)
        if said != head:
            raise BadInput.because(place, f"{said} and {head} are names of the same option. Use only one of them")
        is_set = self._values[name] != self._schema.default(name)
        stands = self._spelled.get(name, name)
        spelled = name if head in attribute.renamed else head
        if value is not None and is_set and stands != spelled:
            raise BadInput.because(
                place, f"the same option is already set under its name {stands}. Use that name, or unset it first"
            )

    def _keep(self, head: str, path: list[str], value: object, place: str) -> None:
        # An earlier release may have stored a key that is not kept any more. It can be unset.
        is_unset = value is None and head in self._values.get("unrecognized", ())
        if not is_unset and not self._schema.keeps(head):
            raise self._schema.refuse_unknown(head, value, place)
        self._values["unrecognized"] = Data().changed(self._values["unrecognized"], [head, *path], value, place)
        if head not in self._unknown:
            self._unknown.append(head)


@dataclass(frozen=True)
class Record(Kind):
    """A map with attributes of its own."""

    schema: Schema

    @property
    def words(self) -> str:  # type: ignore[override]
        return "a map of " + ", ".join(self.schema.attributes)

    def read(self, value: object, place: str) -> Any:
        if not isinstance(value, Mapping):
            raise BadInput(place, value, self.words)
        return self.schema.changed(self.schema.of(), value, place).value

    def write(self, value: Any) -> object:
        return self.schema.written(value)

    def changed(self, before: Any, path: Sequence[str], value: object, place: str) -> Any:
        inside = place.removesuffix("." + ".".join(path))
        return self.schema.changed(before or self.schema.of(), {"/".join(path): value}, inside).value

    def parts(self) -> Iterator[Attribute]:
        """Yield the attributes inside the map."""
        yield from self.schema.attributes.values()
