"""Settings from a file and the environment; what is wrong is said with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.durations import LONGEST_MS, format_duration, parse_duration_ms
from headrace.errors import BadInput
from headrace.runtime.settings import CommonSettings, load
from headrace_admission.settings import AdmissionSettings
from headrace_agent.settings import AgentSettings
from headrace_allocator.settings import AllocatorSettings
from headrace_fair_share.settings import FairShareSettings
from headrace_integral.settings import IntegralSettings

SERVICES: dict[str, type[CommonSettings]] = {
    "admission": AdmissionSettings,
    "agent": AgentSettings,
    "allocator": AllocatorSettings,
    "fair_share": FairShareSettings,
    "integral": IntegralSettings,
}


class Brewery(CommonSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a service that there is not."""

    #: How long it ferments.
    rest_ms: int = 1_000
    kettles: int = 1
    strict: bool = True


def a_file(folder: Path, text: str) -> Path:
    path = folder / "settings.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_without_a_file_and_variables_there_are_the_defaults() -> None:
    assert load(Brewery, "brewery", None, {"PATH": "/bin", "HEADRACE_JOB_INDEX": "3"}) == Brewery()


def test_the_table_of_a_service_wins_over_the_common_one_and_a_variable_over_both(tmp_path: Path) -> None:
    path = a_file(
        tmp_path, '[common]\ntree = "a"\nkettles = 2\n[brewery]\nkettles = 3\nrest_ms = "2s"\n[other]\nx = 1\n'
    )

    assert load(Brewery, "brewery", path, {}) == Brewery(tree="a", kettles=3, rest_ms=2_000)
    assert load(Brewery, "brewery", path, {"HEADRACE_KETTLES": "4"}).kettles == 4
    assert load(Brewery, "brewery", path, {"HEADRACE_KETTLES": "4", "HEADRACE_BREWERY_KETTLES": "5"}).kettles == 5
    assert not load(Brewery, "brewery", path, {"HEADRACE_BREWERY_STRICT": "false"}).strict


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[brewery]\nketles = 3\n", r"\[brewery\] ketles: 3 cannot be used; expected one of .*kettles"),
        ("[common]\nzzz = 3\n", r"\[common\] zzz"),
        ('[brewery]\nkettles = "many"\n', "kettles"),
        ("[brewery]\nkettles = [1]\n", "kettles"),
        ('[brewery]\nrest_ms = "soon"\n', r"\[brewery\] rest_ms: 'soon'.*30s"),
        ("brewery = 3\n", r"a table \[brewery\]"),
        ("[brewery\n", "is not valid TOML"),
        (f"[brewery]\nkettles = {'9' * 5_000}\n", "is not valid TOML"),
        ("[brewery]\nkettles = 1\nkettles = 2\n", "is not valid TOML"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    path = a_file(tmp_path, text)

    with pytest.raises(BadInput, match=words) as refused:
        load(Brewery, "brewery", path, {})
    assert str(path) in str(refused.value)


@pytest.mark.parametrize("service", SERVICES)
def test_every_path_in_a_file_is_taken_from_the_folder_of_the_file_wherever_the_service_starts(
    service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = SERVICES[service]
    paths = [name for name in kind.__struct_fields__ if name.endswith(("_file", "_folder"))]
    assert {"credential_file", "ca_file", "trace_folder"} <= set(paths)
    folder, elsewhere = tmp_path / "host-17", tmp_path / "elsewhere"
    for made in (folder, elsewhere):
        made.mkdir()
    text = f"[{service}]\n" + "".join(f'{name} = "{name}-there"\n' for name in paths)
    a_file(folder, text)
    monkeypatch.chdir(elsewhere)

    for config in (folder / "settings.toml", Path("../host-17/settings.toml")):
        found = load(kind, service, config, {})
        assert {name: getattr(found, name) for name in paths} == {name: f"{folder}/{name}-there" for name in paths}

    kept = {"trace_folder": "", "credential_file": "/root/there", "ca_file": "~/there"}
    config = a_file(folder, "[common]\n" + "".join(f'{name} = "{value}"\n' for name, value in kept.items()))
    found = load(kind, service, config, {"HEADRACE_TRACE_FOLDER": "here", "HOME": "/nowhere"})
    expected = ("here", "/root/there", str(Path("~/there").expanduser()))
    assert (found.trace_folder, found.credential_file, found.ca_file) == expected


def test_a_file_that_is_not_there_or_no_text_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="the settings file cannot be read"):
        load(Brewery, "brewery", tmp_path / "missing", {})
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="the settings file is not valid TOML"):
        load(Brewery, "brewery", tmp_path / "bytes", {})


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({"HEADRACE_BREWERY_KETLES": "3"}, "HEADRACE_BREWERY_KETLES"),
        ({"HEADRACE_REST_MS": "soon"}, "HEADRACE_REST_MS"),
        ({"HEADRACE_REST_MS": "9" * 5_000}, "HEADRACE_REST_MS"),
        ({"HEADRACE_KETTLES": "many"}, "environment"),
    ],
)
def test_what_is_wrong_in_a_variable_is_named(variables: dict[str, str], place: str) -> None:
    with pytest.raises(BadInput) as refused:
        load(Brewery, "brewery", None, variables)

    assert refused.value.place == place


def test_a_variable_for_all_whose_name_begins_like_a_services_own_is_no_mistake() -> None:
    """`HEADRACE_FAIR_SHARE_UPDATE_PERIOD_MS` is `fair_share_update_period_ms` for everybody, `fair_share` included."""

    class FairShare(CommonSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
        """A service whose settings carry its name."""

        fair_share_update_period_ms: int = 0

    variables = {"HEADRACE_FAIR_SHARE_UPDATE_PERIOD_MS": "200ms"}

    assert load(FairShare, "fair_share", None, variables).fair_share_update_period_ms == 200


@pytest.mark.parametrize(
    ("text", "expected"),
    [("30s", 30_000), ("500ms", 500), ("1.5h", 5_400_000), ("2 m", 120_000), ("1d", 86_400_000), ("0", 0), (250, 250)],
)
def test_lengths_of_time_are_read_as_people_write_them(text: str | int, expected: int) -> None:
    assert parse_duration_ms(text, place="here") == expected


@pytest.mark.parametrize("text", ["", "s", "-1s", "1w", "1e3", "one", "1s2", "9" * 400 + "d", -5, "7", "1.5"])
def test_what_is_no_length_of_time_is_refused(text: str | int) -> None:
    with pytest.raises(BadInput, match="a length of time with a unit, such as 30s"):
        parse_duration_ms(text, place="here")


@pytest.mark.parametrize("text", ["11575d", "999999999999999d", LONGEST_MS + 1])
def test_a_length_of_time_beyond_the_longest_is_refused(text: str | int) -> None:
    assert parse_duration_ms(LONGEST_MS, place="here") == LONGEST_MS
    with pytest.raises(BadInput, match="at most 11574d1h"):
        parse_duration_ms(text, place="here")


@pytest.mark.parametrize(
    ("ms", "expected"),
    [(0, "0ms"), (999, "999ms"), (1_000, "1s"), (61_000, "1m1s"), (3_600_000, "1h"), (93_784_000, "1d2h")],
)
def test_lengths_of_time_are_shown_in_two_units_at_most(ms: int, expected: str) -> None:
    assert format_duration(ms) == expected


def test_the_servers_of_a_cluster_stand_behind_one_another() -> None:
    text = "nats://a:4222, tls://[::1]:4223,nats://b"

    assert CommonSettings(nats_url=text).server_urls == ["nats://a:4222", "tls://[::1]:4223", "nats://b"]


@pytest.mark.parametrize("wrong", ["", "a:4222", "http://a", "nats://", "nats://a:x", "nats://a:0", "nats://a:70000"])
def test_what_is_no_address_of_a_server_is_named(wrong: str) -> None:
    with pytest.raises(BadInput, match="nats://host:4222") as refused:
        _ = CommonSettings(nats_url=f"nats://a:4222,{wrong}").server_urls

    assert refused.value.value == wrong


@pytest.mark.parametrize("wrong", ["2", "many"])
def test_a_number_of_replicas_that_no_cluster_can_keep_is_named(wrong: str) -> None:
    with pytest.raises(BadInput, match="replicas"):
        load(CommonSettings, "brewery", None, {"HEADRACE_REPLICAS": wrong})
