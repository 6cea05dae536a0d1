"""Write what is generated from code, or (--check) name what differs from it."""

import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

from hearth import settings
from hearth.api import crd, reference
from hearth.metrics import instruments
from hearth.proxy import api_reference

ROOT = Path(__file__).parent.parent
PROTO = "hearth/externalscaler/externalscaler.proto"


def stubs() -> dict[str, str]:
    """The gRPC stubs, with imports from the package root."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = [f"--{kind}_out={folder}" for kind in ("python", "pyi", "grpclib_python")]
        if protoc.main(["protoc", "-I.", *outputs, PROTO]) != 0:
            sys.exit(f"{PROTO} does not compile")
        return {
            str(path.relative_to(folder)): path.read_text() for path in Path(folder).rglob("*.py*")
        }


def wanted() -> dict[str, str]:
    return {
        **{f"charts/hearth/files/crds/{name}": text for name, text in crd.files().items()},
        "docs/api.md": api_reference.text(),
        "docs/crd.md": reference.text(),
        "docs/metrics.md": instruments.document(),
        "docs/settings.md": settings.reference(),
        **stubs(),
    }


def main() -> None:
    stale = {
        name: text
        for name, text in wanted().items()
        if not (ROOT / name).exists() or (ROOT / name).read_text() != text
    }
    if sys.argv[1:] == ["--check"]:
        if stale:
            sys.exit(f"stale: {', '.join(stale)}; run scripts/generate")
        return
    for name, text in stale.items():
        (ROOT / name).write_text(text)
        print(name)


if __name__ == "__main__":
    main()
