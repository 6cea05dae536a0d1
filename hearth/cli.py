"""The command line: argv to settings to the application."""


def main() -> None:
    raise SystemExit("hearth: not built yet")
