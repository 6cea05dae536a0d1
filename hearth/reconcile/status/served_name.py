"""Read from an engine's arguments the model name that it answers to."""

from collections.abc import Sequence

_FLAGS = ("--served-model-name", "--served_model_name", "--alias", "-a")
"""vLLM's in both spellings, llama.cpp's."""


def read(args: Sequence[str]) -> str | None:
    """The name, of several the first; None where the arguments do not say one."""
    name = None
    for number, arg in enumerate(args):
        flag, separator, value = arg.partition("=")
        if flag not in _FLAGS:
            continue
        if not separator:
            value = args[number + 1] if number + 1 < len(args) else ""
        # Given twice, the last counts.  llama.cpp takes several names, parted by commas.
        value = value.partition(",")[0] if flag in ("--alias", "-a") else value
        name = value.strip() if value and not value.startswith("-") else name
    # Only a kubelet knows what $(NAME) stands for.
    return None if name is None or "$(" in name or not name else name
