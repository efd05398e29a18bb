"""Settings that both the Broker resource and the broker's configuration file have: one module each, with both models.

The model without a suffix is that of the configuration file. The one named `...Spec` is that of the resource: it takes
the same fields, and bounds them, because the API server must know how large a value can become. Where the two differ
in more than bounds (a default, a unit, another spelling), both stand beside each other and say so.
"""
