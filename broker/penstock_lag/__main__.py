"""`python -m penstock_lag`: the lag job without the `penstock` command."""

import sys

from penstock_lag.main import main

sys.exit(main(sys.argv[1:]))
