"""Keys that another account put into a folder before it was used are not used. Only root can give a file to another account."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.access.key_credential import KeyCredential
from headrace.errors import BadInput, HeadraceError
from headrace_cli.agent.joining import join_host
from headrace_cli.agent.token import JoinToken, new_user_key
from headrace_cli.cluster.command import init as init_cluster
from headrace_cli.cluster.tls import init as init_tls


def planted(folder: Path, name: str, text: str) -> Path:
    """A folder that another account made, with a file in it."""
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_text(text)
    for path in (folder / name, (folder / name).parent, folder):
        os.chown(path, 65_534, 65_534)
    return folder


def test_a_host_joins_with_no_key_that_another_account_made(tmp_path: Path) -> None:
    seed = new_user_key().seed
    folder = planted(tmp_path / "node", "joining.seed", seed)
    token = JoinToken("n1", "tls://127.0.0.1:1", "0" * 64, KeyCredential(jwt="", seed=seed))
    with pytest.raises(BadInput, match=r"--folder: .* belongs to uid 65534"):
        join_host(token, token.url, folder)
    with pytest.raises(HeadraceError, match=r"127\.0\.0\.1:1"):
        join_host(token, token.url, folder, owners=[65_534])


@pytest.mark.parametrize("by_link", [False, True])
def test_a_cluster_is_made_with_no_key_that_another_account_made(tmp_path: Path, by_link: bool) -> None:
    folder = planted(tmp_path / "cluster", "authority/operator.seed", "SO")
    if by_link:
        folder = tmp_path / "link"
        folder.symlink_to(tmp_path / "cluster")
    with pytest.raises(BadInput, match=r"belongs to uid 65534"):
        init_cluster(folder, url="nats://127.0.0.1:1", operator=True)
    assert not (folder / "client").exists()


@pytest.mark.parametrize("owns_folder", [False, True])
def test_certificates_are_signed_with_no_key_that_another_account_made(tmp_path: Path, owns_folder: bool) -> None:
    folder = tmp_path / "tls"
    folder.mkdir()
    (folder / "ca.key").write_text("key")
    os.chown(folder if owns_folder else folder / "ca.key", 65_534, 65_534)
    with pytest.raises(BadInput, match=r"FOLDER: .* belongs to uid 65534"):
        init_tls(folder, "127.0.0.1")
    assert [each.name for each in folder.iterdir()] == ["ca.key"]
