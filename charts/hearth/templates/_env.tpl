{{- /* The settings of `hearth run` (docs/settings.md), and who this process is. */ -}}
{{- define "hearth.env" -}}
- {name: HEARTH_RELEASE, value: {{ include "hearth.release" . | quote }}}
- name: HEARTH_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: HEARTH_POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: HEARTH_POD_UID
  valueFrom: {fieldRef: {fieldPath: metadata.uid}}
- {name: HEARTH_GROUPS, value: {{ include "hearth.groups" . | quote }}}
{{- with .Values.namespaces }}
- {name: HEARTH_NAMESPACES, value: {{ join "," . | quote }}}
{{- end }}
{{- with include "hearth.defaultNamespace" . }}
- {name: HEARTH_DEFAULT_NAMESPACE, value: {{ . | quote }}}
{{- end }}
{{- with .Values.clusterDomain }}
- {name: HEARTH_CLUSTER_DOMAIN, value: {{ . | quote }}}
{{- end }}
- {name: HEARTH_SHARED_SERVICE, value: {{ .Values.sharedService | quote }}}
{{- with include "hearth.domains" . }}
- {name: HEARTH_INGRESS_DOMAIN, value: {{ . | quote }}}
{{- end }}
- {name: HEARTH_POLLING_INTERVAL, value: {{ .Values.scaler.pollingInterval | quote }}}
- {name: HEARTH_WATCHDOG, value: {{ .Values.scaler.watchdog | quote }}}
- {name: HEARTH_HPA_WATCHDOG, value: {{ .Values.scaler.hpaWatchdog | quote }}}
{{- with .Values.admin.tokenSecret }}
{{- if .name }}
- {name: HEARTH_ADMIN_TOKEN, valueFrom: {secretKeyRef: {name: {{ .name | quote }}, key: {{ .key | quote }}}}}
{{- end }}
{{- end }}
- {name: HEARTH_BACKEND_GUARD, value: {{ include "hearth.guard" . | quote }}}
{{- with .Values.backends.scrapeNamespaces }}
- {name: HEARTH_SCRAPE_NAMESPACES, value: {{ join "," . | quote }}}
{{- end }}
{{- with .Values.prewarm.orasImage }}
- {name: HEARTH_PREWARM_ORAS_IMAGE, value: {{ . | quote }}}
{{- end }}
- {name: HEARTH_MIGRATION_CLEANUP, value: {{ .Values.migration.cleanup | quote }}}
- {name: HEARTH_MARK_LOADING, value: {{ .Values.backends.markLoading | quote }}}
- {name: HEARTH_READY_GRACE, value: {{ .Values.gateway.readyGrace | quote }}}
- {name: HEARTH_DRAIN_LIMIT, value: {{ .Values.gateway.drainLimit | quote }}}
- {name: HEARTH_CLIENT_IDLE, value: {{ .Values.gateway.clientIdle | quote }}}
- {name: HEARTH_BODY_LIMIT_BYTES, value: {{ .Values.gateway.bodyLimitBytes | int64 | quote }}}
- {name: HEARTH_HELD_BYTES, value: {{ .Values.gateway.heldBytes | int64 | quote }}}
{{- with .Values.gateway.corsOrigins }}
- {name: HEARTH_CORS_ORIGINS, value: {{ join "," . | quote }}}
{{- end }}
{{- with .Values.admin.hosts }}
- {name: HEARTH_ADMIN_HOSTS, value: {{ join "," . | quote }}}
{{- end }}
- {name: HEARTH_ERROR_DETAIL, value: {{ .Values.gateway.errorDetail | quote }}}
- {name: HEARTH_LOG_LEVEL, value: {{ .Values.log.level | quote }}}
- {name: HEARTH_LOG_FORMAT, value: {{ .Values.log.format | quote }}}
- {name: HEARTH_ACCESS_LOG, value: {{ .Values.log.access | quote }}}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}
