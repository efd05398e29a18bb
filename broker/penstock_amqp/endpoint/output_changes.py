"""What is changed in the engine's output before it is sent.

Attaches get what the engine can't say: the link's offered capabilities, an empty unsettled map. A Begin whose session
has ended meanwhile gets its remote channel back. The flow that the engine sends behind each Begin says nothing new, and
is left out; so is what settles deliveries without an outcome because their link ends. A Close gets AMQP's condition for
the error, and follows the End of the session that the error concerns.

This module must not know the engine. Source: AMQP 1.0 part 2, 2.5.1, 2.6.3, 2.7.9 and 2.8.17.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock_amqp.endpoint.events import AmqpError
from penstock_amqp.endpoint.links import InLink, OutLink, Session
from penstock_amqp.frames.frame_sizes import encode_fitted
from penstock_amqp.frames.output_rewrite import rewrite_frames
from penstock_amqp.frames.performatives import Attach, Begin, Close, Disposition, End, Error, Flow, Performative
from penstock_amqp.types.composites import Composite
from penstock_amqp.types.values import Described, Symbol

__all__ = ["AttachAdditions", "OutputChanges", "PendingChanges"]

_CODES: Final = frozenset((Attach.CODE, Begin.CODE, Flow.CODE, Close.CODE))
_CODES_OF_REFUSALS: Final = _CODES | {Disposition.CODE}

Frames = Sequence[tuple[int, Performative]]


@dataclass(frozen=True, slots=True)
class AttachAdditions:
    """What the engine can't say in the reply to an attach."""

    link: InLink | OutLink
    names: tuple[str, ...] = ()
    """The link's offered capabilities."""
    answers_unsettled: bool = False
    """The reply has an empty unsettled map: no delivery is resumed."""
    default_outcome: Composite | Described | None = None
    """What becomes of deliveries that the peer settles without an outcome."""


class PendingChanges:
    """What the next output has to say and the engine can't."""

    __slots__ = ("_additions", "_begun", "_last_words", "_unanswered", "are_pending")

    def __init__(self) -> None:
        self.are_pending = False
        """There is something that the next output has to say: a field, because it is asked for each output."""
        self._begun: list[Session] = []
        self._additions: list[AttachAdditions] = []
        self._last_words: tuple[AmqpError, int | None] | None = None
        self._unanswered: list[Session] = []

    def begin(self, session: Session) -> None:
        """The Begin of this session is in the engine."""
        self._begun.append(session)
        self.are_pending = True

    def add(self, additions: AttachAdditions) -> None:
        """The reply to an attach is in the engine, and lacks these."""
        self._additions.append(additions)
        self.are_pending = True

    def say_last(self, error: AmqpError, channel: int | None) -> None:
        """`error` is that of our Close in place of the engine's. `channel`: ours of the session that is ended before
        it, if any.
        """
        self._last_words = error, channel
        self.are_pending = True

    def leave_unanswered(self, session: Session) -> None:
        """Deliveries of a link of this session that has ended have no answer. The engine settles these without an
        outcome, which their sender may take for success: that is left out.
        """
        if session not in self._unanswered:
            self._unanswered.append(session)
        self.are_pending = True

    def clear(self) -> None:
        """The connection is freed: no session begins any more."""
        self._begun.clear()

    def apply(self, data: bytes, max_frame_size: int) -> bytes:
        """Return `data`, all of the engine's output, as it is to be sent: frames of at most `max_frame_size` bytes."""
        changes = OutputChanges(self._additions, self._begun, self._last_words, max_frame_size, self._unanswered)
        self._additions, self._last_words, self._unanswered = [], None, []
        try:
            return changes.apply(data)
        finally:
            self.are_pending = bool(self._begun)  # those whose Begin is not written yet


class OutputChanges:
    """The changes of one turn's output. `begun` loses the sessions whose Begin goes out."""

    def __init__(
        self,
        additions: Sequence[AttachAdditions],
        begun: list[Session],
        last_words: tuple[AmqpError, int | None] | None,
        max_frame_size: int,
        unanswered: Sequence[Session] = (),
    ) -> None:
        """`last_words`: the error of our Close, and the channel of the session that is ended before it. `unanswered`:
        sessions in which nothing is settled without an outcome.
        """
        self._unanswered = unanswered
        self._additions = additions
        self._begun = begun
        self._last_words = last_words
        self._max_frame_size = max_frame_size
        self._quiet: set[int] = set()
        self._is_closed = False

    def apply(self, data: bytes) -> bytes:
        """Return `data`, which is whole frames, as it is to be sent. Notes the channels and handles that it names."""
        codes = _CODES_OF_REFUSALS if self._unanswered else _CODES
        changed = rewrite_frames(data, codes, self._change, self._max_frame_size)
        if self._last_words is not None and not self._is_closed:  # the engine has failed without a Close
            words = self._close(self._last_words)
            changed += b"".join(encode_fitted(each, channel, self._max_frame_size) for channel, each in words)
        return changed

    def _change(self, channel: int, performative: Performative) -> Frames | None:
        match performative:
            case Attach():
                return self._attach(channel, performative)
            case Begin():
                return self._begin(channel, performative)
            case Flow():
                return () if performative.handle is None and channel in self._quiet else None
            case Disposition(role=True, settled=True, state=None):
                return () if any(each.local_channel == channel for each in self._unanswered) else None
            case Close():
                self._is_closed = True
                return None if self._last_words is None else self._close(self._last_words)
            case _:
                return None

    def _attach(self, channel: int, attach: Attach) -> Frames | None:
        addition = next((each for each in self._additions if _is_of(each.link, channel, attach)), None)
        if addition is None:
            return None
        link = addition.link
        link.local = (channel, attach.handle)
        is_as_it_is = link.name == attach.name and not addition.names and not addition.answers_unsettled
        if is_as_it_is and addition.default_outcome is None:
            return None
        source = attach.source
        changed = replace(
            attach,
            name=link.name,
            source=None if source is None else replace(source, default_outcome=addition.default_outcome),
            offered_capabilities=tuple(Symbol(name) for name in addition.names) or None,
            unsettled={} if addition.answers_unsettled else None,
        )
        return ((channel, changed),)

    def _begin(self, channel: int, begin: Begin) -> Frames | None:
        """The engine forgets the remote channel of a session that has ended in the meantime."""
        for session in self._begun:
            if session.channel == begin.remote_channel or (begin.remote_channel is None and session.has_ended):
                self._begun.remove(session)
                session.local_channel = channel
                self._quiet.add(channel)
                return ((channel, replace(begin, remote_channel=session.channel)),)
        return None

    def _close(self, last_words: tuple[AmqpError, int | None]) -> Frames:
        told, channel = last_words
        info = {Symbol(key): value for key, value in told.info.items()}
        error = Error(condition=Symbol(told.condition), description=told.description or None, info=info or None)
        ends = () if channel is None else ((channel, End(error=error)),)
        return (*ends, (0, Close(error=error)))


def _is_of(link: InLink | OutLink, channel: int, attach: Attach) -> bool:
    """True if `attach` is the engine's reply for `link`. Links of several sessions may have one name."""
    is_named = link.engine_name == attach.name and isinstance(link, InLink) == attach.role
    return is_named and link.session.local_channel == channel
