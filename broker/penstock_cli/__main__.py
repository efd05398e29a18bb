"""`python -m penstock_cli` is `penstock`: how `penstock up` starts its children, whatever is on the PATH."""

from penstock_cli.main import main

if __name__ == "__main__":
    main()
