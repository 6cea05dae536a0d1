"""Runs a program of a pod as a real process."""

import os
import subprocess
import sys

from tests import hanging


def environment(variables):
    inherited = {name: os.environ[name] for name in ("PATH",) if name in os.environ}
    return inherited | {name: str(value) for name, value in variables.items()}


def run(text, **variables):
    """Its exit code and what it wrote."""
    done = subprocess.run(
        [sys.executable, "-c", text],
        env=environment(variables),
        capture_output=True,
        text=True,
        timeout=hanging.limit_s(60),
    )
    return done.returncode, done.stdout, done.stderr


def start(text, **variables):
    return subprocess.Popen(
        [sys.executable, "-c", text],
        env=environment(variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
