"""JMS selectors: parse, compare, evaluate.

``compile_selector`` is the way in. ``grammar`` and ``parser`` read the text, ``syntax`` is what was read, ``normal``
writes it back in one spelling, ``code`` turns it into one Python function, which calls ``values`` and ``like``. None of
them knows messages: the caller looks identifiers up. Source: JMS 2.0, section 3.8.1 "Message selector".
"""

from penstock_core.selector.compiled import Lookup, Selector, compile_selector, stored_selector
from penstock_core.selector.grammar import InvalidSelector

__all__ = ["InvalidSelector", "Lookup", "Selector", "compile_selector", "stored_selector"]
