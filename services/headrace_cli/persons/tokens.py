"""The commands `headrace token …`: tokens with which programs use the HTTP API in the name of a person."""

from __future__ import annotations

from cyclopts import App

from headrace.client import Client
from headrace.client.tokens import token_lifetime_ms
from headrace.wire.refusals import renamed_inputs
from headrace_cli.session import Common, Switch, Watching, talk
from headrace_cli.show.screen import Screen
from headrace_cli.show.tables import table
from headrace_cli.show.times import timestamp

app = App(
    name="token",
    help="""Make, list and revoke tokens for programs that use the HTTP API in your name.

    A token has your rights, or the rights to read only. It cannot make other tokens. It ends when it expires, when you revoke it, and
    when your own credential is revoked. Tokens need a cluster made with `headrace cluster init --operator`.
    """,
)


@app.command
def create(*, name: str = "", read_only: Switch = False, expires: str = "30d", common: Common | None = None) -> int:
    """Print a new token. Nobody can print it again.

    Anyone who has the token can use it, so treat it like a password. A program sends it in the header `Authorization: Bearer TOKEN`.

    Examples of use:

        headrace token create --name dashboard --read-only > token

        headrace token create --name nightly --expires 90d

    Parameters
    ----------
    name
        A name by which you recognise the token.
    read_only
        The server refuses every request with the token that changes something.
    expires
        Time until the token ends, from 1s to 366d.
    """
    lifetime_ms = token_lifetime_ms(expires, place="--expires")

    async def work(client: Client, screen: Screen) -> None:
        with renamed_inputs(lambda place: "--name" if place == "name" else place):
            made = await client.tokens.create(name=name, read_only=read_only, lifetime_ms=lifetime_ms)
        if screen.json:
            screen.print_line({"text": made.text, "token": made.token})
            return
        screen.print_raw(made.text)
        rights = "reads only" if read_only else f"has the rights of {client.user}"
        screen.say(f"it {rights}, and ends at {timestamp(made.token.expires_at_ms / 1000)}; it is not printed again")

    return talk(common, work, bears_restarts=True)


@app.command(name="list")
def list_(*, watching: Watching | None = None, common: Common | None = None) -> int:
    """List your tokens that have not ended, the first made first.

    Examples of use:

        headrace token list
    """

    async def work(client: Client, screen: Screen) -> None:
        answer = await client.tokens.list()
        made = table("token", "name", "may", "made at", "ends at")
        for each in answer.tokens:
            times = (timestamp(at_ms / 1000) for at_ms in (each.created_at_ms, each.expires_at_ms))
            made.add_row(each.key, each.name, "read" if each.read_only else "read and change", *times)
        screen.show(answer, made)

    return talk(common, work, watching=watching)


@app.command
def revoke(token: str, /, *, common: Common | None = None) -> int:
    """Revoke a token. Its connections are closed when the command returns.

    Examples of use:

        headrace token revoke nightly

    Parameters
    ----------
    token
        The token, as `headrace token list` shows it, or its name.
    """

    async def work(client: Client, screen: Screen) -> None:
        revoked = await client.tokens.revoke(token)
        screen.show_line(revoked, f"token {revoked.name or revoked.key} is revoked")

    return talk(common, work, bears_restarts=True)
