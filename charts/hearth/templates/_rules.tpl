{{- /* Rights in a namespace that is served: exactly what hearth/cluster and hearth/reconcile use. */ -}}
{{- define "hearth.rules.served" -}}
- apiGroups: {{ splitList "," (include "hearth.groups" .) | toJson }}
  resources: [llmservices]
  verbs: [get, list, watch]
- apiGroups: {{ splitList "," (include "hearth.groups" .) | toJson }}
  resources: [llmservices/status]
  verbs: [patch]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
# The watchdog, and the built-in scaler where there is no KEDA.
- apiGroups: [apps]
  resources: [deployments/scale]
  verbs: [patch]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch, delete]
# A claim is written once, and goes with its service or by a person's hand.  The patch: its owner,
# after a restore.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, create, patch]
# A Job that fetches weights is written once as well; it goes where it is no longer wanted.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [keda.sh]
  resources: [scaledobjects]
  verbs: [get, list, watch, create, patch, delete]
{{- if eq (include "hearth.guard" .) "policy" }}
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
{{- end }}
- apiGroups: [""]
  resources: [pods]
  # To patch a pod is to change its image as well: only where it is asked for.
  verbs: [get, list, watch{{ if .Values.backends.markLoading }}, patch{{ end }}]
# They stand between a Deployment and its pods: whose a pod is, is told by uid.
- apiGroups: [apps]
  resources: [replicasets]
  verbs: [get, list, watch]
# Keys and certificates, each by the name that a service gives.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get{{ if .Values.migration.cleanup }}, delete{{ end }}]
{{- if .Values.migration.cleanup }}
# What a reference project's controller left, each by name and uid.
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, delete]
{{- end }}
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end -}}

{{- /* Rights that no namespace can give. */ -}}
{{- define "hearth.rules.cluster" -}}
- apiGroups: {{ splitList "," (include "hearth.groups" .) | toJson }}
  resources: [inferenceruntimes]
  verbs: [get, list, watch]
# Whether the schema that is served has every field that this version knows.
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  resourceNames:
    {{- range splitList "," (include "hearth.groups" .) }}
    - llmservices.{{ . }}
    - inferenceruntimes.{{ . }}
    {{- end }}
  verbs: [get]
{{- end -}}

{{- /* Rights among our own replicas. */ -}}
{{- define "hearth.rules.own" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ include "hearth.release" . }}]
  verbs: [get, update]
{{- if not .Values.lease.create }}
# Whose Lease it is: it goes with the Deployment.
- apiGroups: [apps]
  resources: [deployments]
  resourceNames: [{{ include "hearth.release" . }}]
  verbs: [get]
{{- end }}
# The label that says which replica is addressed.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, patch]
{{- end -}}

{{- define "hearth.subjects" -}}
- kind: ServiceAccount
  name: {{ include "hearth.serviceAccount" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}
