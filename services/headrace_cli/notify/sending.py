"""Sends a message to a target: JSON to a webhook, or a mail. One attempt; raises `Undelivered` if it fails."""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Callable
from email.message import EmailMessage
from email.utils import formatdate
from functools import partial
from typing import assert_never

import msgspec

from headrace_cli.notify.notifier import Message
from headrace_cli.notify.rules import Mail, Target, Webhook
from headrace_cli.outgoing.delivery import LONGEST_ATTEMPT_S, TIMEOUT_S, Undelivered, post
from headrace_cli.outgoing.exchange import Exchange
from headrace_cli.show.screen import harmless

_LONGEST_TITLE = 200


def attempt_for(target: Target, message: Message) -> Callable[[], None]:
    """Return the function that makes one attempt to deliver a message."""
    match target.to:
        case Webhook() as webhook:
            headers = {"Content-Type": "application/json", "Idempotency-Key": message.key, **webhook.headers}
            return partial(post, webhook.url, webhook_body(message), headers)
        case Mail() as mail:
            return partial(_send_mail, mail, message)
        case _:
            assert_never(target.to)


def webhook_body(message: Message) -> bytes:
    """Return the JSON that a webhook gets. Chat services show its `text`."""
    notifications = [each.fields() for each in message.occurrences]
    return msgspec.json.encode({"text": message.text, "notifications": notifications, "dropped": message.dropped})


def _mail_of(mail: Mail, message: Message) -> EmailMessage:
    made = EmailMessage()
    title = harmless(message.title).replace("\n", " ")
    made["Subject"] = f"Headrace: {title[:_LONGEST_TITLE]}"
    made["From"] = mail.sender
    made["To"] = ", ".join(message.occurrences[0].recipients)
    made["Date"] = formatdate(localtime=True)
    made["Message-ID"] = f"<{message.key}@{mail.sender.rpartition('@')[2]}>"
    # This header says that a program wrote the mail, so that programs such as an absence notice do not answer.
    made["Auto-Submitted"] = "auto-generated"
    made.set_content(harmless(message.text) + "\n")
    return made


def _connected(mail: Mail, exchange: Exchange, context: ssl.SSLContext) -> smtplib.SMTP:
    if mail.security == "tls":
        with_tls = exchange.bounded(smtplib.SMTP_SSL, "_get_socket")
        return with_tls(mail.host, mail.port, timeout=TIMEOUT_S, context=context)
    return exchange.bounded(smtplib.SMTP, "_get_socket")(mail.host, mail.port, timeout=TIMEOUT_S)


def _send_mail(mail: Mail, message: Message) -> None:
    try:
        context = ssl.create_default_context()
        with Exchange(LONGEST_ATTEMPT_S) as exchange, _connected(mail, exchange, context) as server:
            if mail.security == "starttls":
                server.starttls(context=context)
            if mail.user:
                server.login(mail.user, mail.password)
            if refused := server.send_message(_mail_of(mail, message)):
                raise smtplib.SMTPRecipientsRefused(refused)
    except smtplib.SMTPRecipientsRefused as error:
        codes = [code for code, _ in error.recipients.values()]
        words = ", ".join(f"{code} for {to}" for to, (code, _) in error.recipients.items())
        raise Undelivered(f"the server refuses the addresses: {words}", is_final=min(codes) >= 500) from None
    except smtplib.SMTPResponseException as error:
        is_final = isinstance(error, smtplib.SMTPDataError) and error.smtp_code >= 500
        raise Undelivered(
            f"the server answers {error.smtp_code} {_text(error.smtp_error)}", is_final=is_final
        ) from None
    except (smtplib.SMTPException, OSError) as error:
        raise Undelivered(f"the server does not answer ({type(error).__name__}: {error})") from None


def _text(answer: bytes | str) -> str:
    return harmless(answer.decode(errors="replace") if isinstance(answer, bytes) else answer).replace("\n", " ")
