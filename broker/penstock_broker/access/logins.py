"""Answers what SASL dialogues ask: whose keys, whether a secret is right. What takes long is done on a thread.

A question that memory can answer is answered at once. Others go to one thread, which lets go of the interpreter lock
while it hashes; its answers come back over a descriptor that the loop watches. A login never stalls the loop. Whoever
failed often waits before the check begins (`login_throttle`).

Source: design, section 4 ("password hashing goes to a thread", "verified secrets are cached as keyed hashes").
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from penstock_amqp.errors import WireError
from penstock_amqp.sasl.credentials import CredentialRecord, SecretCache, fits
from penstock_amqp.sasl.frames import SaslCode
from penstock_amqp.sasl.mechanisms import CredentialAnswer, Find, Identified, Question, Verdict, Verify, Wrong
from penstock_amqp.sasl.server import Authenticated, Refused
from penstock_amqp.sasl.tokens import TokenError
from penstock_broker.access.connection import Connection, Phase
from penstock_broker.access.listeners import ListeningPort
from penstock_broker.access.login_throttle import LoginThrottle
from penstock_broker.access.rejections import reason_of_code, reason_of_error
from penstock_broker.access.users import Absent, Proof, Signed
from penstock_broker.state.broker import Broker

__all__ = ["Logins"]

logger = logging.getLogger(__name__)

BEARER: Final = frozenset(("XOAUTH2", "OAUTHBEARER"))

MAX_WAITING: Final = 2000
"""Questions that wait for the thread; who asks more is told to try again."""


class _Job(NamedTuple):
    connection: int | None
    """None: nobody waits; a password is hashed before somebody needs it."""
    port: ListeningPort
    question: Question
    now_us: int
    """Time of day when it was asked."""


class _Errand(NamedTuple):
    """Something else that takes long, done on the same thread."""

    work: Callable[[], Callable[[], None]]
    """Returns what the loop is to do with its result."""
    failed: Callable[[], None]


class _Done(NamedTuple):
    job: _Job
    answer: CredentialAnswer
    proof: Proof | None
    """What the login will stand on, if it succeeds."""


class Logins:
    """One per broker; `deliver` brings an answer to a connection that still waits for it; `begun` learns who is in."""

    def __init__(
        self,
        broker: Broker,
        deliver: Callable[[Connection, CredentialAnswer], None],
        begun: Callable[[Connection], None],
    ) -> None:
        self._broker = broker
        self._begun = begun
        self._deliver = deliver
        self._secrets = SecretCache(os.urandom(32))
        self._guessing = LoginThrottle()
        self._jobs: queue.SimpleQueue[_Job | _Errand | None] = queue.SimpleQueue()
        self._waiting = 0
        self._done: deque[_Done | Callable[[], None]] = deque()
        self._thread: threading.Thread | None = None
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        """Readable when `collect` has something to do."""

    def preload(self, port: ListeningPort) -> None:
        """Hash the passwords of a listener's users before somebody waits for them."""
        for user in port.user_names():
            self._submit(_Job(None, port, Find("SCRAM-SHA-256", user), self._broker.clock.now_us))

    def ask(self, connection: Connection, question: Question) -> CredentialAnswer | None:
        """Answer at once, or later through `deliver`."""
        wait_ms = self._guessing.wait_ms(connection.peer_host, question.user, self._broker.clock.now_ms)
        if wait_ms > 0:
            self._broker.clock.after(wait_ms, lambda: self._ask_again(connection, question))
            return None
        return self._begin(connection, question)

    def _ask_again(self, connection: Connection, question: Question) -> None:
        if connection.phase is Phase.SASL:
            answer = self._begin(connection, question)
            if answer is not None:
                self._deliver(connection, answer)

    def _begin(self, connection: Connection, question: Question) -> CredentialAnswer | None:
        answer = self._quickly(connection, question)
        if answer is None and self._waiting >= MAX_WAITING:
            return Verdict.UNKNOWN
        if answer is None:
            self._submit(_Job(connection.number, connection.port, question, self._broker.clock.now_us))
        return answer

    def _quickly(self, connection: Connection, question: Question) -> CredentialAnswer | None:
        port = connection.port
        if port.users is None or question.mechanism in BEARER:
            return None
        record = port.users.ready(question.user)
        if isinstance(record, CredentialRecord):
            connection.proof = record
        if isinstance(question, Find):
            if record is Absent.NOT_LOADED:
                return None
            return port.keys_of(question, record if isinstance(record, CredentialRecord) else None)
        if isinstance(record, CredentialRecord) and self._secrets.knows(question.user, question.secret, record):
            return Verdict.RIGHT
        return None

    def ended(self, connection: Connection, result: Authenticated | Refused) -> None:
        """A dialogue is over: remember how, and say why somebody was not let in."""
        if isinstance(result, Refused):
            user = result.user[:100] if result.user is not None else None
            told = (connection.peer, connection.port.name, user, result.reason[:200])
            self._broker.clients.rejections.count(reason_of_code(result.code))
            self._broker.clients.warnings.warn("Refused %s on listener %s as user %r: %s", *told)
        if isinstance(result, Authenticated):
            self._begun(connection)
            self._guessing.succeeded(connection.peer_host, result.user)
        elif result.user is not None and result.code is SaslCode.AUTH:
            self._guessing.failed(connection.peer_host, result.user, self._broker.clock.now_ms)

    def broken(self, connection: Connection, error: WireError) -> None:
        """There will be no dialogue: what lies below it has failed."""
        logger.info("%s on listener %s: %s", connection.peer, connection.port.name, error)
        if not connection.is_known:
            self._broker.clients.rejections.count(reason_of_error(error))

    # -- the thread -------------------------------------------------------------------------------------------------

    def _submit(self, job: _Job | _Errand) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="logins", daemon=True)
            self._thread.start()
        if isinstance(job, _Job):
            self._waiting += 1
        self._jobs.put(job)

    def run(self, work: Callable[[], Callable[[], None]], failed: Callable[[], None]) -> None:
        """Do `work` on the thread, and on the loop what it returns; or `failed` there, if it raises."""
        self._submit(_Errand(work, failed))

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._done.append(_errand(job) if isinstance(job, _Errand) else _answer(job))
            os.eventfd_write(self.descriptor, 1)

    def collect(self) -> None:
        """Bring the thread's answers to whoever waits for them."""
        os.eventfd_read(self.descriptor)
        while self._done:
            done = self._done.popleft()
            if isinstance(done, _Done):
                self._waiting -= 1
                self._bring(done)
            else:
                done()

    def _bring(self, done: _Done) -> None:
        job, answer, proof = done
        question = job.question
        if isinstance(question, Verify) and answer is Verdict.RIGHT and isinstance(proof, CredentialRecord):
            self._secrets.remember(question.user, question.secret, proof)
        connection = self._broker.clients.connections.get(job.connection) if job.connection is not None else None
        if connection is not None and connection.phase is Phase.SASL:
            connection.proof = proof
            self._deliver(connection, answer)

    def close(self) -> None:
        """End the thread, behind the job it has, and give the descriptor back."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
        os.close(self.descriptor)


def _errand(errand: _Errand) -> Callable[[], None]:
    try:
        return errand.work()
    except Exception:
        logger.exception("What logins stand on could not be looked at")
        return errand.failed


def _answer(job: _Job) -> _Done:
    try:
        return _Done(job, *_slowly(job))
    except Exception:
        logger.exception("The secret of %r could not be checked", job.question.user)
        return _Done(job, Verdict.UNKNOWN, None)


def _bearer(port: ListeningPort, token: bytes, now_us: int) -> tuple[CredentialAnswer, Proof | None]:
    """Who the token speaks for. The log says what is wrong with it: its bearer learns nothing."""
    try:
        bearer, issuer = port.issuers.check(token, now_us / 1_000_000)
    except TokenError as error:
        return Wrong(f"the token lets nobody in: {error}"), None
    return Identified(bearer.user, bearer.groups), Signed(issuer, bearer.key, int(bearer.ends * 1_000_000))


def _slowly(job: _Job) -> tuple[CredentialAnswer, Proof | None]:
    """The answer, and what it stands on."""
    port, question = job.port, job.question
    if isinstance(question, Verify) and question.mechanism in BEARER:
        return _bearer(port, question.secret, job.now_us)
    if port.users is None:
        return Verdict.UNKNOWN, None
    record = port.users.load(question.user)
    if isinstance(question, Find):
        return port.keys_of(question, record), record
    try:
        password = question.secret.decode()
    except UnicodeDecodeError:
        password = ""
    # Also for a user that does not exist: it has to take as long.
    right = fits(password, record if record is not None else port.users.fake(question.user))
    return (Verdict.RIGHT if right and record is not None else Verdict.WRONG), record
