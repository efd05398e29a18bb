"""JMS selectors: parse, compare, evaluate.

Start at ``compile_selector``. ``text`` has the limits; ``grammar`` and ``parser`` read the text into the tree of
``syntax``; ``normal_form`` writes the tree back in one spelling; ``code`` turns it into one Python function, which
calls ``values`` and ``like``. None of them knows messages: the caller looks identifiers up. Source: JMS 2.0, section
3.8.1 "Message selector".
"""

from penstock_core.selector.compiled import Lookup, Selector, compile_selector, mean_the_same, stored_selector
from penstock_core.selector.text import InvalidSelector

__all__ = ["InvalidSelector", "Lookup", "Selector", "compile_selector", "mean_the_same", "stored_selector"]
