"""Where a pod of Hearth's differs from the second reference's on purpose, and why."""

from typing import Any, NamedTuple

from tests.reconcile.reference import delivered

ANY: Any = object()
ABSENT: Any = "-"


class Meant(NamedTuple):
    """A difference at a path (`*` stands for one step or more) that is meant."""

    path: str
    reason: str
    theirs: Any = ANY
    ours: Any = ANY
    only: tuple[str, ...] = ()
    """Rows in which it may stand; all, where none is named."""


DIFFERENCES = [
    Meant("labels.app.kubernetes.io/managed-by", "it is Hearth that manages them", ours="hearth"),
    *(
        Meant(f"labels.serving.hearth.dev/{name}", "what Hearth's own objects are known by", ABSENT)
        for name in ("service", "runtime")
    ),
    Meant(
        "strategy.*",
        "one accelerator cannot hold two pods: a surge would wait for ever for a device",
    ),
    Meant(
        "progressDeadlineSeconds",
        "ten minutes beyond the time that the startup probe gives an engine to load: a slow load is"
        " no failed roll-out",
        600,
    ),
    Meant(
        "container.startupProbe.failureThreshold",
        "the default probe gives a cold start all of its activationTimeout",
        60,
        120,
        ("a long activation",),
    ),
    Meant(
        "pod.enableServiceLinks",
        "a service called vllm would hand the engine a VLLM_PORT that it cannot read",
        ABSENT,
        False,
    ),
    Meant("pod.securityContext.*", "an image without root can write to a fresh claim", ABSENT),
    Meant(
        "container.securityContext.*",
        "an engine needs no more rights than it starts with",
        ABSENT,
    ),
    Meant(
        "container.terminationMessagePolicy",
        "the end of an engine's log says why it died",
        ABSENT,
        "FallbackToLogsOnError",
    ),
    Meant("env.POD_IP.*", "an argument may say --host=$(POD_IP)", ABSENT),
    *(
        Meant(f"env.{name}", "a place to write for images without root or home", ABSENT)
        for name in ("HOME", "XDG_CACHE_HOME", "VLLM_CACHE_ROOT", "TRITON_CACHE_DIR")
    ),
    Meant(
        "mounts./scratch.*",
        "a place to write for images without root or home",
        ABSENT,
    ),
    Meant(
        "mounts./cache.*",
        "weights that are staged go to no claim of a cache: a folder that goes with the pod",
        only=("staged weights and a cache",),
    ),
    Meant("claim.*", "likewise", ours=ABSENT, only=("staged weights and a cache",)),
    Meant(
        "scaling.pollingInterval",
        "KEDA is pushed what changes; each poll of a thousand services costs",
        5,
        15,
    ),
    Meant(
        "scaling.pollingInterval",
        "KEDA warns of settings that have no meaning above zero",
        5,
        ABSENT,
        ("scaling",),
    ),
    Meant(
        "scaling.cooldownPeriod",
        "likewise",
        90,
        ABSENT,
        ("scaling",),
    ),
    Meant(
        "scaling.metadata.scalerAddress",
        "one scaler for all services; with mutual TLS under the service's own name",
    ),
    Meant("scaling.metadata.serviceUID", "a service of the same name may follow this one", ABSENT),
    Meant(
        "scaling.metadata.serverSecretName",
        "the scaler that all services share must know which certificate is meant",
        ABSENT,
        "scaler-tls",
        ("mutual TLS of the scaler",),
    ),
    Meant(
        "scaling.metadata.enableTLS",
        "KEDA dials with TLS from its first connection on",
        ABSENT,
        "true",
        ("mutual TLS of the scaler",),
    ),
    Meant(
        "waits for prewarm",
        "no pod serves from half a cache, and while the Job writes it no engine does",
        False,
        True,
        (
            "a claim filled by a Job",
            "a Job on the nodes of the pods",
            "a token of the hub",
            "a Job for ModelScope",
        ),
    ),
    *(
        Meant(
            f"{at}env.HF_MODULES_CACHE", "code of a model has no place on a read-only cache", ABSENT
        )
        for at in ("", "job.")
    ),
    Meant(
        "job.labels.*",
        "labels that select backends must not be on a Job's pod: it would be taken for one",
    ),
    Meant("job.pod.securityContext.*", "the Job writes what pods of that group read", ABSENT),
    Meant("job.container.securityContext.*", "restricted namespaces let the Job in", ABSENT),
    Meant("job.pod.enableServiceLinks", "as in the server's pod", ABSENT, False),
    Meant("job.pod.terminationGracePeriodSeconds", "a download is resumed, not ended well", ABSENT),
    Meant("job.container.resources.*", "small requests: quotas ask for some", ABSENT),
    Meant(
        "job.container.terminationMessagePolicy",
        "what the program said last is in the status",
        ABSENT,
        "FallbackToLogsOnError",
    ),
    Meant("job.env.POD_IP.*", "as in the server's pod: variables may refer to it", ABSENT),
    *(
        Meant(f"job.env.{name}", "a place to write for images without root or home", ABSENT)
        for name in ("HOME", "XDG_CACHE_HOME", "VLLM_CACHE_ROOT", "TRITON_CACHE_DIR")
    ),
    Meant("job.mounts./scratch.*", "likewise", ABSENT),
    Meant(
        "job.env.HF_TOKEN.*",
        "a gated model can be fetched only with the token that the server has",
        ABSENT,
        only=("a token of the hub",),
    ),
    Meant(
        "job.env.HF_HUB_OFFLINE", "a server may be offline, the Job is what goes out", ABSENT, "0"
    ),
    Meant(
        "job.env.NVIDIA_VISIBLE_DEVICES", "the Job asks for no device and sees none", ABSENT, "void"
    ),
    Meant("job.env.HEARTH_*", "values of the program; its text is the same for all", ABSENT),
    Meant(
        "job.mounts./staging*",
        "one folder above: what is pulled is checked before it counts, and has a home beside it",
    ),
    Meant("job.init.pull-oci-model.image", "a digest, which a mirror may give, and not a tag"),
    Meant(
        "job.init.pull-oci-model.args",
        "the registry's login lies in a folder of Hearth's",
        ours=[*delivered.PULL, "/var/run/hearth/registry/config.json"],
    ),
    Meant("job.init.pull-oci-model.mounts./staging*", "as above"),
    Meant("job.init.pull-oci-model.mounts./var/run/*", "as above"),
]
