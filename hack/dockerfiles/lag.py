"""What spark-submit starts: the lag job as a Spark application, with the arguments of `penstock lag`."""

import sys

from penstock_cli.main import main

sys.argv = ["penstock", "lag", *sys.argv[1:]]
main()
