"""Folders into which another account can put files: executors import nothing from them, and `slurm install` writes nothing into them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.access.key_credential import KeyCredential
from headrace.errors import BadInput, HeadraceError
from headrace.executor.job import is_trusted
from headrace_cli.agent.joining import join_host
from headrace_cli.agent.token import JoinToken, new_user_key
from headrace_cli.cluster.command import init as init_cluster
from headrace_cli.cluster.tls import init as init_tls
from headrace_cli.slurm.command import install


def test_a_folder_of_another_account_below_a_folder_that_everybody_can_write_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    everybodys = tmp_path / "everybodys"
    project = everybodys / "theirs" / "project"
    project.mkdir(parents=True)
    everybodys.chmod(0o1777)
    assert is_trusted(str(project))
    assert not is_trusted(str(project / "missing"))

    if os.geteuid() == 0:
        os.chown(project.parent, 12_345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert not is_trusted(str(project))
    assert f"everybody can write to {everybodys}" in capsys.readouterr().err or os.geteuid() != 0

    everybodys.chmod(0o755)
    assert is_trusted(str(project)) is (os.geteuid() == 0)


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_a_folder_that_everybody_can_write_is_not_used(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    assert not is_trusted(str(tmp_path))


def test_a_folder_that_everybody_can_replace_is_not_used(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    tmp_path.chmod(0o777)
    assert not is_trusted(str(project))


@pytest.mark.parametrize(("mode", "why"), [(0o777, "everybody can write"), (0o1777, "everybody can")])
def test_commands_of_slurm_are_not_written_where_other_accounts_can_replace_them(
    tmp_path: Path, mode: int, why: str
) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(BadInput, match=why):
        install(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_group_that_can_replace_the_commands_of_slurm_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o775)
    install(tmp_path)
    assert f"group {tmp_path.stat().st_gid} can write to {tmp_path}" in " ".join(capsys.readouterr().err.split())


def test_commands_of_slurm_are_not_written_through_the_folder_or_link_of_another_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, theirs, everybodys = tmp_path / "own", tmp_path / "theirs", tmp_path / "everybodys"
    for folder in (own, theirs, everybodys):
        folder.mkdir()
    link = everybodys / "link"
    link.symlink_to(own)
    everybodys.chmod(0o1777)
    install(link)

    if os.geteuid() == 0:
        os.chown(theirs, 12_345, -1)
        os.chown(link, 12_345, -1, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    for folder in (theirs, link):
        with pytest.raises(BadInput, match="belongs to account"):
            install(folder)
    assert list(theirs.iterdir()) == []


def planted(folder: Path, name: str, text: str) -> Path:
    """A folder that another account made, with a file in it."""
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_text(text)
    for path in (folder / name, (folder / name).parent, folder):
        os.chown(path, 65_534, 65_534)
    return folder


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another account")
def test_a_host_joins_with_no_key_that_another_account_made(tmp_path: Path) -> None:
    seed = new_user_key().seed
    folder = planted(tmp_path / "node", "joining.seed", seed)
    token = JoinToken("n1", "tls://127.0.0.1:1", "0" * 64, KeyCredential(jwt="", seed=seed))
    with pytest.raises(BadInput, match=r"--folder: .* belongs to uid 65534"):
        join_host(token, token.url, folder)
    with pytest.raises(HeadraceError, match=r"127\.0\.0\.1:1"):
        join_host(token, token.url, folder, owners=[65_534])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another account")
@pytest.mark.parametrize("by_link", [False, True])
def test_a_cluster_is_made_with_no_key_that_another_account_made(tmp_path: Path, by_link: bool) -> None:
    folder = planted(tmp_path / "cluster", "authority/operator.seed", "SO")
    if by_link:
        folder = tmp_path / "link"
        folder.symlink_to(tmp_path / "cluster")
    with pytest.raises(BadInput, match=r"belongs to uid 65534"):
        init_cluster(folder, url="nats://127.0.0.1:1", operator=True)
    assert not (folder / "client").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another account")
@pytest.mark.parametrize("owns_folder", [False, True])
def test_certificates_are_signed_with_no_key_that_another_account_made(tmp_path: Path, owns_folder: bool) -> None:
    folder = tmp_path / "tls"
    folder.mkdir()
    (folder / "ca.key").write_text("key")
    os.chown(folder if owns_folder else folder / "ca.key", 65_534, 65_534)
    with pytest.raises(BadInput, match=r"FOLDER: .* belongs to uid 65534"):
        init_tls(folder, "127.0.0.1")
    assert [each.name for each in folder.iterdir()] == ["ca.key"]
