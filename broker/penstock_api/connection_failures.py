"""Why a connection could not be made, or ended, in words for a person who knows the network but not Python.

The text of an `OSError` has numbers and tuples of the interpreter (`[Errno 111] Connect call failed (...)`). Pure.
"""

from __future__ import annotations

import errno
import os
import ssl
from typing import Final

__all__ = ["connection_failure"]

_WORDS: Final = {
    errno.ECONNREFUSED: "nothing listens there",
    errno.ENOENT: "there is no such socket",
    errno.EACCES: "this user may not use the socket",
    errno.EHOSTUNREACH: "there is no route to this host",
    errno.ENETUNREACH: "there is no route to this network",
    errno.ECONNRESET: "the other side broke the connection",
    errno.EPIPE: "the other side broke the connection",
    errno.ETIMEDOUT: "nothing answered in time",
}


def connection_failure(error: BaseException) -> str:
    """A clause without its full stop, such as "nothing listens there"."""
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted: {error.verify_message or 'it could not be verified'}"
        case ssl.SSLError():
            reason = (error.reason or "unknown reason").replace("_", " ").lower()
            return f"TLS could not be agreed on ({reason}); check that this port speaks TLS"
        case OSError() if error.errno is not None and error.errno < 0:  # a code of getaddrinfo
            return "no address is known for this name"
        case TimeoutError():
            return "nothing answered in time"
        case OSError() if error.filename is not None and error.errno is not None:  # a file that the connection needs
            return f"{error.filename} can't be read ({os.strerror(error.errno)})"
        case OSError() if error.errno in _WORDS:
            return _WORDS[error.errno]
        case OSError() if error.errno is not None:
            return os.strerror(error.errno)
        case _:
            return str(error) or type(error).__name__
