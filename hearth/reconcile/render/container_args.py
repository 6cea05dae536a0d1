"""Render the serving container's arguments and environment."""

from collections.abc import Mapping

from hearth import names
from hearth.api.llmservice import LLMService
from hearth.api.meta import Manifest
from hearth.api.runtime import InferenceRuntime
from hearth.cache import volume
from hearth.reconcile.render.go_template import functions, template
from hearth.reconcile.spec import spec_errors
from hearth.reconcile.spec.spec_errors import SpecError

POD_IP: Manifest = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
"""On every backend, so that an argument may say `--host=$(POD_IP)`."""
_BRACES = '; two braces that are meant as such are written {{ "{{" }}'


def args(service: LLMService, runtime: InferenceRuntime, *, model_path: str) -> list[str]:
    """The runtime's arguments, then the service's, rendered.  Raises SpecError with the field."""
    data = template.Data(model_path=model_path, service=service.key)
    override = service.spec.runtime.args_override if service.spec.runtime else []
    own = f"InferenceRuntime {runtime.metadata.name}: spec.container.args"
    return [
        *(
            _render(text, data, field=f"{own}[{i}]")
            for i, text in enumerate(runtime.spec.container.args)
        ),
        *(
            _render(text, data, field=f"spec.runtime.argsOverride[{i}]", hint=_BRACES)
            for i, text in enumerate(override)
        ),
    ]


def env(
    service: LLMService,
    runtime: InferenceRuntime,
    *,
    model_path: str,
    defaults: Mapping[str, str],
    engine_key: tuple[str, str] | None = None,
) -> list[Manifest]:
    """The pod's address, what the engine asks for (its Secret and the key there), the runtime's
    variables, rendered, then those that it does not set itself.

    A name is there once, with its last value, as a kubelet reads a list that has it twice.  Where
    the runtime sets one of `volume.FIXED` that `defaults` has, the default stands in its place:
    what the runtime's later variables say of it means the same folder.  Raises SpecError, naming
    the field.
    """
    data = template.Data(model_path=model_path, service=service.key)
    own: dict[str, Manifest] = {}
    for number, variable in enumerate(runtime.spec.container.env):
        own.pop(variable.name, None)
        own[variable.name] = variable.manifest()
        if variable.value is not None:
            where = f"InferenceRuntime {runtime.metadata.name}: spec.container.env[{number}].value"
            value = _render(variable.value, data, field=where)
            own[variable.name] = {**own[variable.name], "value": value}
    for name in volume.FIXED:
        if name in own and name in defaults:
            own[name] = {"name": name, "value": defaults[name]}
    rest = {name: {"name": name, "value": value} for name, value in defaults.items()}
    # The address first: values may refer to variables before them.
    given = [POD_IP, *([_engine_key(*engine_key)] if engine_key else [])]
    first = {variable["name"]: variable for variable in given if variable["name"] not in own}
    return list((first | own | {n: v for n, v in rest.items() if n not in own}).values())


def _engine_key(secret: str, key: str) -> Manifest:
    reference = {"name": secret, "key": key}
    return {"name": names.ENGINE_KEY, "valueFrom": {"secretKeyRef": reference}}


def _render(text: str, data: template.Data, *, field: str, hint: str = "") -> str:
    try:
        return template.render(text, data)
    except functions.TemplateError as error:
        raise SpecError(
            spec_errors.RENDER,
            f"{field}: {error}{hint}",
        ) from error
