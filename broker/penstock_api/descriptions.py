"""Whether models have the descriptions of their fields: the docstrings below these.

pydantic reads them from the sources, which takes an eighth of the time in which a broker, the operator or a command
starts. Only the CRDs show them, so only hack/crds asks for them, before it imports any model.
"""

from __future__ import annotations

__all__ = ["wanted"]

wanted = False
