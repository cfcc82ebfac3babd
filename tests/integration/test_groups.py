"""Groups of people on a real server: changes take effect at once in every service, and outlive every process."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from functools import partial
from threading import Event

import anyio
import pytest

import headrace
from headrace.client import Unanswered
from headrace.ids import GroupName
from headrace.wire import subjects
from headrace.wire.groups import GroupOfPerson, GroupSource
from headrace.wire.refusals import Exists, NotAllowed, NotFound, Refused
from headrace_admission.groups import lookups
from headrace_admission.groups import requests as group_requests
from headrace_admission.groups.host_groups import HostGroups, groups_on_host
from headrace_admission.service import serve as serve_admission
from headrace_admission.settings import AdmissionSettings
from headrace_fair_share.service import serve as serve_fair_share
from headrace_fair_share.settings import FairShareSettings
from tests.support.clocks import HandClock
from tests.support.killing import killed
from tests.support.nats_server import NatsServer, nats_server
from tests.support.tree_services import a_bus, running

pytestmark = [pytest.mark.anyio, pytest.mark.long]
SETTINGS = AdmissionSettings(administrators="eve")
OF_GROUP = {"access": {"use": ["group:research"], "write": ["group:research"]}}


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with nats_server() as started:
        yield started


async def test_a_change_is_in_force_in_every_service_when_it_is_answered(server: NatsServer) -> None:
    async def refusal(asking: Awaitable[object]) -> NotAllowed:
        with pytest.raises(Refused) as refused:
            await asking
        assert isinstance(refused.value.refusal, NotAllowed)
        return refused.value.refusal

    async with (
        running(server, SETTINGS, serve_admission, "admission"),
        running(server, FairShareSettings(administrators="eve"), serve_fair_share, "fair_share"),
        headrace.connect(url=server.url, user="eve") as eve,
        headrace.connect(url=server.url, user="ben") as ben,
    ):
        await eve.pools.create("p", attributes=OF_GROUP)
        await eve.groups.create("research")
        for _ in range(3):
            assert (await refusal(ben.run(["true"], pool="p"))).holders == ["group:research"]
            assert (await refusal(ben.pools.set("p", {"weight": 2}))).groups == []
            await eve.groups.add("research", ["ben"])
            await ben.run(["true"], pool="p")
            await ben.pools.set("p", {"weight": 2})
            assert [each.name for each in (await ben.persons.rights()).groups] == ["research"]
            await eve.groups.remove("research", ["ben"])
        assert (await refusal(ben.groups.add("research", ["ben"]))).who == "ben"


async def test_groups_outlive_a_kill_and_the_loss_of_their_bucket(server: NatsServer) -> None:
    async with killed(server, SETTINGS, serve_admission), headrace.connect(url=server.url, user="eve") as eve:
        await eve.groups.create("research", ["ben", "anna"])
        await eve.groups.create("gone.soon")
        await eve.groups.delete("gone.soon")
        await eve.groups.create("gone.soon", ["anna"])
        await eve.groups.delete("gone.soon")
        with pytest.raises(Refused) as twice:
            await eve.groups.create("research")
    async with a_bus(server, "service", "admission") as bus:
        bucket = await bus.key_value(subjects.GROUPS_BUCKET)
        await bucket.put("research", b"damaged")

    async with running(server, SETTINGS, serve_admission), headrace.connect(url=server.url, user="eve") as eve:
        group = await eve.groups.get("research")
        known = [each.name for each in (await eve.groups.list()).groups]
        with pytest.raises(Refused) as unknown:
            await eve.groups.add("reserch", ["cleo"])

    assert twice.value.refusal == Exists("group", "research")
    assert ([*group.members], group.created_by, known) == (["ben", "anna"], "eve", ["research"])
    assert unknown.value.refusal == NotFound("group", "reserch", near=["research"])


async def test_each_change_is_in_force_when_it_is_answered_also_after_a_bucket_was_lost(server: NatsServer) -> None:
    async with (
        running(server, SETTINGS, serve_admission, "admission"),
        headrace.connect(url=server.url, user="eve") as eve,
        a_bus(server, "service", "thief") as bus,
    ):
        await eve.groups.create("research", ["ben"])
        for bucket in (subjects.copies_of(subjects.GROUPS_BUCKET), subjects.GROUPS_BUCKET):
            await bus.jetstream.ask(f"STREAM.DELETE.KV_{bucket}", {})
            await eve.groups.add("research", ["cleo"])
            assert [*(await eve.groups.remove("research", ["cleo"])).members] == ["ben"]
            await eve.groups.create("other")
            await eve.groups.delete("other")
            assert [each.name for each in (await eve.groups.list()).groups] == ["research"]

    async with running(server, SETTINGS, serve_admission), headrace.connect(url=server.url, user="eve") as eve:
        assert [*(await eve.groups.get("research")).members] == ["ben"]


async def test_without_admission_rights_by_name_hold_and_a_request_that_may_need_a_group_waits_for_it(
    server: NatsServer,
) -> None:
    async with (
        running(server, FairShareSettings(administrators="eve"), serve_fair_share, "fair_share"),
        headrace.connect(url=server.url, user="eve") as eve,
        headrace.connect(url=server.url, user="ben") as ben,
        headrace.connect(url=server.url, user="ben", timeout_s=0.5) as hasty,
    ):
        await eve.pools.create("p", attributes=OF_GROUP)
        await eve.pools.create("q", attributes={"access": {"write": ["ben"]}})
        await ben.pools.set("q", {"weight": 2})
        with pytest.raises((Refused, Unanswered), match="the groups of ben are not known, because admission does not"):
            await hasty.pools.set("p", {"weight": 2})
        async with running(server, SETTINGS, serve_admission, "admission"):
            await eve.groups.create("research", ["ben"])
            await ben.pools.set("p", {"weight": 3})


async def test_groups_of_the_host_count_where_that_is_set_up(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_host = {"ben": (GroupName("staff"),)}

    monkeypatch.setattr(group_requests, "HostGroups", partial(HostGroups, lookup=lambda user: on_host.get(user, ())))
    settings = AdmissionSettings(administrators="eve", groups_of_host=True)
    async with running(server, settings, serve_admission), headrace.connect(url=server.url, user="ben") as ben:
        before = (await ben.persons.rights()).groups
        on_host["ben"] = (GroupName("guests"),)
        # The first lookup counts for up to a second.
        with anyio.fail_after(10):
            while (after := (await ben.persons.rights()).groups) == before:
                pass

    assert [*before, *after] == [GroupOfPerson(GroupName(name), GroupSource.HOST) for name in ("staff", "guests")]


async def test_a_name_service_that_hangs_holds_up_only_the_first_request_and_counts_for_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lookups, "_WAIT_S", 0.05)
    clock, hangs = HandClock(), Event()
    looked: list[str] = []
    taken: dict[str, tuple[GroupName, ...] | None] = {}

    def lookup(user: str) -> tuple[GroupName, ...]:
        looked.append(user)
        if len(looked) > 1:
            hangs.wait(20)
        return (GroupName("staff"),)

    async with anyio.create_task_group() as tasks:
        groups = HostGroups(clock, tasks, taken.__setitem__, lookup)
        await groups.know("ben")
        await groups.know("ben")
        assert (looked, taken) == (["ben"], {"ben": ("staff",)})
        for passed_s, known in ((5, ("staff",)), (10, ("staff",)), (60, None)):
            clock.now_s += passed_s
            await groups.know("ben")
            assert taken["ben"] == known
        assert looked == ["ben", "ben"]
        hangs.set()


def test_the_groups_of_an_account_begin_with_its_primary_group() -> None:
    assert groups_on_host("root")[0] == "root"
    for name in ("no-such-account", "a\0b", "\udcff", "Root", ""):
        assert groups_on_host(name) == ()
