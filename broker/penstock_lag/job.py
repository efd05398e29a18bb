"""What spark-submit runs: the lag job with the application's arguments. Images have it as /opt/penstock/lag_job.py."""

import sys

from penstock_lag.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
