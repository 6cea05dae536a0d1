"""`python -m hearth`."""

from hearth import cli

if __name__ == "__main__":
    cli.main()
