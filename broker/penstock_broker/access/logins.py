"""Answers the questions of SASL dialogues: the keys of a user, and whether a secret is right.

A question whose answer is in memory is answered at once; others are answered by the thread of `login_thread`. A user
name or network address that failed often waits before its check begins (`login_throttle`). Secrets that were right are
remembered as keyed hashes. Source: docs/decisions/025-password-hashing.md.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from penstock_amqp.errors import TokenError, WireError
from penstock_amqp.sasl.credentials import CredentialRecord, SecretCache, fits
from penstock_amqp.sasl.frames import SaslCode
from penstock_amqp.sasl.mechanisms import (
    CredentialAnswer,
    Identified,
    LookUpKeys,
    Question,
    Verdict,
    Verify,
    WrongCredentials,
)
from penstock_amqp.sasl.server import Authenticated, Refused
from penstock_broker.access.connection import Connection, Phase
from penstock_broker.access.listeners import Listener
from penstock_broker.access.login_thread import Finish, LoginThread
from penstock_broker.access.login_throttle import LoginThrottle
from penstock_broker.access.rejections import Rejections, reason_of_code, reason_of_error
from penstock_broker.access.users import NoRecord, Proof, SignedToken
from penstock_broker.clock import TurnClock
from penstock_broker.warning_throttle import WarningThrottle

__all__ = ["Logins"]

logger = logging.getLogger(__name__)

TOKEN_MECHANISMS: Final = frozenset(("XOAUTH2", "OAUTHBEARER"))

MAX_WAITING: Final = 2000
"""Questions that wait for the thread; with more, a client is told to try again."""


class _SecretCheck(NamedTuple):
    """A question for the thread."""

    connection: int | None
    """None: no client waits; the password is hashed in advance."""
    listener: Listener
    question: Question
    now_us: int
    """Time of day when it was asked."""


class _Result(NamedTuple):
    answer: CredentialAnswer
    proof: Proof | None
    """What the login depends on from then on, if it succeeds."""


class Logins:
    """The logins of one broker."""

    def __init__(
        self,
        clock: TurnClock,
        connections: Mapping[int, Connection],
        thread: LoginThread,
        rejections: Rejections,
        lines: WarningThrottle,
        *,
        deliver: Callable[[Connection, CredentialAnswer], None],
        logged_in: Callable[[Connection], None],
    ) -> None:
        """`connections`: by number. `lines`: where logins are told. `deliver` brings an answer to a connection whose
        dialogue still waits for it; `logged_in` is called for each connection that has logged in.
        """
        self._clock = clock
        self._connections = connections
        self._thread = thread
        self._rejections = rejections
        self._lines = lines
        self._deliver = deliver
        self._logged_in = logged_in
        self._secrets = SecretCache(os.urandom(32))
        self._throttle = LoginThrottle()
        self._waiting = 0
        """Questions that wait for the thread."""

    def preload(self, listener: Listener) -> None:
        """Hash the passwords of a listener's users in advance, one after the other, so that a client that logs in
        meanwhile waits for one of them at most.
        """
        self._preload_next(listener, deque(listener.user_names()))

    def _preload_next(self, listener: Listener, left: deque[str]) -> None:
        if not left:
            return
        check = _SecretCheck(None, listener, LookUpKeys("SCRAM-SHA-256", left.popleft()), self._clock.now_us)

        def load() -> Finish:
            _result_of(check)
            return partial(self._preload_next, listener, left)

        self._thread.submit(load)

    def ask(self, connection: Connection, question: Question) -> CredentialAnswer | None:
        """Answer at once, or later through `deliver`."""
        wait_ms = self._throttle.wait_ms(connection.transport.peer_host, question.user, self._clock.now_ms)
        if wait_ms > 0:
            self._clock.after(wait_ms, lambda: self._ask_again(connection, question))
            return None
        return self._begin(connection, question)

    def _ask_again(self, connection: Connection, question: Question) -> None:
        if connection.phase is Phase.SASL:
            answer = self._begin(connection, question)
            if answer is not None:
                self._deliver(connection, answer)

    def _begin(self, connection: Connection, question: Question) -> CredentialAnswer | None:
        answer = self._answer_from_memory(connection, question)
        if answer is None and self._waiting >= MAX_WAITING:
            return Verdict.UNKNOWN
        if answer is None:
            self._submit(_SecretCheck(connection.number, connection.listener, question, self._clock.now_us))
        return answer

    def _answer_from_memory(self, connection: Connection, question: Question) -> CredentialAnswer | None:
        listener = connection.listener
        if listener.users is None or question.mechanism in TOKEN_MECHANISMS:
            return None
        record = listener.users.ready(question.user)
        if isinstance(record, CredentialRecord):
            connection.login.proof = record
        if isinstance(question, LookUpKeys):
            if record is NoRecord.NOT_LOADED:
                return None
            return listener.keys_of(question, record if isinstance(record, CredentialRecord) else None)
        if isinstance(record, CredentialRecord) and self._secrets.knows(question.user, question.secret, record):
            return Verdict.RIGHT
        return None

    def finished(self, connection: Connection, result: Authenticated | Refused) -> None:
        """A dialogue is over: remember how, and log why a client was refused."""
        peer_host = connection.transport.peer_host
        if isinstance(result, Authenticated):
            self._logged_in(connection)
            self._throttle.succeeded(peer_host, result.user)
            self._lines.warn(
                "User %r has logged in from %s on listener %s (%s)",
                result.user[:100],
                connection.transport.peer,
                connection.listener.name,
                result.mechanism or "without SASL",
            )
            return
        self._rejections.warn(
            reason_of_code(result.code),
            "Refused %s on listener %s as user %r: %s",
            connection.transport.peer,
            connection.listener.name,
            result.user[:100] if result.user is not None else None,
            result.reason[:200],
        )
        if result.user is not None and result.code is SaslCode.AUTH:
            self._throttle.failed(peer_host, result.user, self._clock.now_ms)

    def transport_failed(self, connection: Connection, error: WireError) -> None:
        """TLS or WebSocket of a connection has failed, before, in or after its dialogue."""
        logger.info("%s on listener %s: %s", connection.transport.peer, connection.listener.name, error)
        if not connection.login.is_authenticated:
            self._rejections.count(reason_of_error(error))

    def _submit(self, check: _SecretCheck) -> None:
        self._waiting += 1
        self._thread.submit(lambda: partial(self._take, check, _result_of(check)))

    def _take(self, check: _SecretCheck, result: _Result) -> None:
        """Bring the thread's answer to the connection that waits for it."""
        self._waiting -= 1
        question, proof = check.question, result.proof
        if isinstance(question, Verify) and result.answer is Verdict.RIGHT and isinstance(proof, CredentialRecord):
            self._secrets.remember(question.user, question.secret, proof)
        connection = self._connections.get(check.connection) if check.connection is not None else None
        if connection is not None and connection.phase is Phase.SASL:
            connection.login.proof = proof
            self._deliver(connection, result.answer)


# -- on the thread ----------------------------------------------------------------------------------------------------


def _result_of(check: _SecretCheck) -> _Result:
    try:
        return _check_secret(check)
    except Exception:
        logger.exception("The secret of %r could not be checked", check.question.user)
        return _Result(Verdict.UNKNOWN, None)


def _check_secret(check: _SecretCheck) -> _Result:
    listener, question = check.listener, check.question
    if isinstance(question, Verify) and question.mechanism in TOKEN_MECHANISMS:
        return _check_token(listener, question.secret, check.now_us)
    if listener.users is None:
        return _Result(Verdict.UNKNOWN, None)
    try:
        record = listener.users.load(question.user)
    except OSError:
        return _Result(Verdict.UNKNOWN, None)  # told by `users`; it may be another time that it can be read
    if isinstance(question, LookUpKeys):
        return _Result(listener.keys_of(question, record), record)
    try:
        password = question.secret.decode()
    except UnicodeDecodeError:
        password = ""
    # Also for a user that does not exist: the time that it takes must not show whether the user exists.
    fitting = fits(password, record if record is not None else listener.users.fake(question.user))
    return _Result(Verdict.RIGHT if fitting and record is not None else Verdict.WRONG, record)


def _check_token(listener: Listener, token: bytes, now_us: int) -> _Result:
    """Find out the user of a token. What is wrong with a token is logged, but not sent to the client."""
    assert listener.issuers is not None  # otherwise none of `TOKEN_MECHANISMS` is offered
    try:
        bearer, issuer = listener.issuers.check(token, now_us / 1_000_000)
    except TokenError as error:
        return _Result(WrongCredentials(f"the token is not valid here: {error}"), None)
    proof = SignedToken(issuer, bearer.key, int(bearer.ends * 1_000_000))
    return _Result(Identified(bearer.user, bearer.groups), proof)
