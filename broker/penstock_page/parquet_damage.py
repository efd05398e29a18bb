"""What reading a Parquet file may raise that is damaged: one list for the observer, the lag job and the pages.

The contracts (`penstock_api`) may not know Arrow; this is the lowest package that all of them may import.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# Reason: pyarrow ships no type information.

from __future__ import annotations

from typing import Final

import pyarrow as pa

from penstock_page.parquet_footer import FooterDamaged

__all__ = ["PARQUET_DAMAGED"]

PARQUET_DAMAGED: Final[tuple[type[Exception], ...]] = (pa.ArrowException, OSError, UnicodeDecodeError, FooterDamaged)
"""OSError is also what Arrow itself raises of damaged pages, without a number (`errno`); UnicodeDecodeError is of a
damaged name of a column.
"""
