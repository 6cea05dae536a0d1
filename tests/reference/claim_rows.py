"""What the references say outside their tables of fields: status, reasons, refusals, sentences."""

from tests.reference.row import NOCTAYA, Claim, claim, refused, served, unstored

_STATUS = "tests/reconcile/status/test_status.py"
_ROW = f"{_STATUS}::test_phase_and_conditions_by_row"
_FAILURES = "tests/reconcile/status/test_pod_failures.py"
_CRASHES = f"{_FAILURES}::test_crashes_are_terminal_from_the_second_restart_on"
_PLAN = "tests/reconcile/apply/test_plan.py"
_RECONCILER = "tests/reconcile/test_service_reconciler.py"
_SELECTION = "tests/reconcile/spec/test_runtime_selection.py"
_PREWARM = "tests/reconcile/test_prewarm.py"
_AUTH = "tests/proxy/routing/test_auth.py"
_META = "tests/api/test_meta.py"

STATUS = [
    claim("status.phase", "Pending, Loading, Ready, ScaledToZero or Degraded", _ROW),
    claim(
        "status.resolvedRuntime",
        "the InferenceRuntime that was chosen",
        f"{_RECONCILER}::test_a_service_gets_its_objects_a_route_and_a_status",
    ),
    *(
        claim(f"phase.{phase}", "one of five", _ROW)
        for phase in ("Pending", "Loading", "Ready", "ScaledToZero", "Degraded")
    ),
    claim("condition.Ready", "whether requests are served", _ROW),
    claim("condition.Degraded", "a failure that was observed", _ROW, of=NOCTAYA),
    claim(
        "condition.AutoscalingReady",
        "whether KEDA is configured; where the spec is refused, False for the same reason",
        f"{_STATUS}::test_autoscaling",
        f"{_STATUS}::test_a_refusal_is_also_why_autoscaling_is_not_ready",
        of=NOCTAYA,
    ),
    claim("status.replicas", "ready backend replicas", f"{_STATUS}::test_a_whole_status"),
    claim(
        "status.endpointURL",
        "the base URL in the cluster; it ends in /v1",
        f"{_RECONCILER}::test_a_service_gets_its_objects_a_route_and_a_status",
    ),
    claim(
        "status.conditions",
        "Ready, Degraded and AutoscalingReady, each of the generation that it was seen for",
        f"{_STATUS}::test_a_whole_status",
        f"{_STATUS}::test_a_time_moves_only_with_the_status",
    ),
    claim(
        "runtime status.conditions",
        "a runtime's own status is not filled in",
        "tests/reference/test_claims.py::test_a_runtime_gets_no_status",
    ),
]
REASONS = [
    *(
        claim(f"reason.{reason}", "Ready is False on the way", _ROW, of=NOCTAYA)
        for reason in ("Activating", "Starting", "ModelLoading", "SchedulingDelayed")
    ),
    claim(
        "reason.ImagePullFailed",
        "Degraded",
        f"{_FAILURES}::test_an_image_that_cannot_be_pulled_fails_at_once",
        f"{_FAILURES}::test_an_image_pull_may_fail_once",
        of=NOCTAYA,
    ),
    *(
        claim(f"reason.{reason}", "Degraded", _CRASHES, of=NOCTAYA)
        for reason in ("OOMKilled", "CrashLoopBackOff", "ContainerRestarting")
    ),
    claim(
        "reason.ProgressDeadlineExceeded",
        "Degraded",
        "tests/reconcile/status/test_observation.py::test_progress_deadline_exceeded_is_a_failure",
        of=NOCTAYA,
    ),
    claim(
        "reason.PrewarmFailed",
        "a Job that failed, with what it said; to delete it is to run it again",
        f"{_PREWARM}::test_field_case_85_a_failed_job_is_told_with_what_it_said_last_and_heals",
        of=NOCTAYA,
    ),
    claim(
        "reason.ModelResolution",
        "a model that cannot be had",
        refused("a catalog", "an unknown scheme", "a tag"),
        of=NOCTAYA,
    ),
    claim(
        "reason.RuntimeResolution",
        "no runtime, or several alike",
        refused("no such runtime", "two runtimes alike", "a vendor without runtimes"),
        of=NOCTAYA,
    ),
    claim(
        "reason.Render",
        "what no pod can be made of",
        refused("a part of a device", "a baked image", "a queue of another scheduler"),
        of=NOCTAYA,
    ),
    claim(
        "reason.Prewarm",
        "a registry's model without a cache",
        refused("an artifact without a cache"),
        of=NOCTAYA,
    ),
    claim("reason.ScaledObject", "what KEDA cannot be told", refused("kvCacheUtil"), of=NOCTAYA),
    *(
        claim(f"reason.{reason}", "Degraded is False", _ROW, of=NOCTAYA)
        for reason in ("Inactive", "Progressing", "Healthy")
    ),
    claim(
        "reason.ScaledToZero",
        "nothing runs, and the next request starts it",
        _ROW,
        of=NOCTAYA,
    ),
    claim("reason.Available", "Ready is True", _ROW, of=NOCTAYA),
    claim(
        "reason.ScaledObjectApplied",
        "AutoscalingReady is True",
        f"{_STATUS}::test_autoscaling",
        of=NOCTAYA,
    ),
]
SENTENCES = [
    claim(
        "text.durations",
        "durations are written as Go writes them",
        f"{_META}::test_durations",
        f"{_META}::test_what_go_does_not_read_is_no_duration",
    ),
    claim("text.quantities", "quantities are Kubernetes'", f"{_META}::test_quantities"),
    claim(
        "text.created once",
        "claim and Job are created once, and a change of what they are for is reported",
        f"{_PLAN}::test_a_pvc_is_written_once",
        "tests/reconcile/apply/test_written_once.py::test_a_changed_job_is_told_with_both_values",
        f"{_PREWARM}::test_the_job_is_created_once",
    ),
    claim(
        "text.staged weights",
        "pvc:// is mounted read-only at /models and downloads nothing",
        served("staged weights"),
    ),
    claim(
        "text.one writer",
        "SharedPVC is ReadWriteMany; with prewarm the Job writes it and servers read it",
        served("one claim for all nodes", "one claim for all nodes, filled by a Job"),
    ),
    claim(
        "text.artifact",
        "an artifact comes by a Job, with the Secret as config.json, and is read-only after",
        served("an artifact of a private registry"),
        of=NOCTAYA,
    ),
    claim(
        "text.no device",
        "the Job asks for no device and mounts nothing of the host",
        served("a Job on the nodes of the pods"),
    ),
    claim(
        "text.requeue",
        "a change of a runtime requeues the services that use it",
        "tests/reconcile/test_caches.py::test_a_change_of_a_runtime_enqueues_its_services",
    ),
    claim(
        "text.selection",
        "vendors in order, then priority; equals are ambiguous",
        f"{_SELECTION}::test_by_name_by_vendor_then_by_priority",
        f"{_SELECTION}::test_refusals",
    ),
    claim(
        "text.grace",
        "a pod's grace is at least drainTimeout and ten seconds",
        served("draining"),
    ),
    claim(
        "text.replicas",
        "KEDA owns the replicas of a backend",
        f"{_PLAN}::test_replicas_stay_as_the_autoscaler_set_them",
        of=NOCTAYA,
    ),
    claim(
        "text.first start",
        "a service is created at its minimum: none runs that nobody asked for",
        f"{_PLAN}::test_it_is_created_at_its_minimum_and_only_the_second_manager_owns_that",
        of=NOCTAYA,
    ),
    claim(
        "text.passive runtime",
        "what a runtime lacks is told on the services that use it",
        f"{_RECONCILER}::test_a_runtime_that_breaks_a_rule_rejects_its_services_until_it_is_mended",
    ),
    claim(
        "text.heals",
        "a refused edit changes nothing that runs",
        f"{_RECONCILER}::test_a_rejected_edit_changes_nothing_that_runs",
    ),
    claim(
        "text.client key",
        "the client's key does not reach the backend",
        f"{_AUTH}::test_the_key_opens_and_goes_no_further",
        of=NOCTAYA,
    ),
    claim(
        "text.queue is full",
        "one request more than maxQueue is a 429 with Retry-After",
        "tests/proxy/behaviour/test_cold_requests.py::test_a_full_queue",
        of=NOCTAYA,
    ),
    claim(
        "text.certificate",
        "the server's certificate is valid for <service>-scaler.<namespace>.svc",
        "tests/keda/tls/test_certificate.py::test_what_a_client_would_refuse",
        of=NOCTAYA,
    ),
    claim(
        "text.unauthorized",
        "without the key 401, and nothing wakes",
        f"{_AUTH}::test_a_wrong_key_is_a_401_that_wakes_nothing",
        of=NOCTAYA,
    ),
    claim(
        "text.rotation",
        "a new key counts without a restart",
        "tests/lifecycle/test_openai_package.py::test_keys_and_their_rotation",
        of=NOCTAYA,
    ),
    claim(
        "text.queue",
        "the demand table is at /noctaya/queue, without a key",
        "tests/admin/test_server.py::test_the_demand_table_has_two_addresses",
        of=NOCTAYA,
    ),
    claim(
        "text.schema",
        "what the schema refuses",
        unstored("an empty uri", "min above max", "an empty selector", "no runtime"),
        of=NOCTAYA,
    ),
]
ROWS: list[Claim] = [*STATUS, *REASONS, *SENTENCES]
