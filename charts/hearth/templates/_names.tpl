{{- /* Names that the program knows too (hearth/names.py) come from the release's name alone. */ -}}
{{- define "hearth.release" -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" .Release.Name) -}}
{{- fail (printf "release name %q: Services are named after it, so it must begin with a letter and have only a-z, 0-9 and -" .Release.Name) -}}
{{- end -}}
{{- .Release.Name -}}
{{- end -}}

{{- /* Cluster-scoped objects of two releases of one name must not meet. */ -}}
{{- define "hearth.clusterName" -}}
{{ .Release.Namespace }}-{{ include "hearth.release" . }}
{{- end -}}

{{- define "hearth.selector" -}}
app.kubernetes.io/name: hearth
app.kubernetes.io/instance: {{ include "hearth.release" . }}
{{- end -}}

{{- define "hearth.leader" -}}
{{ include "hearth.selector" . }}
serving.hearth.dev/role: leader
{{- end -}}

{{- define "hearth.labels" -}}
{{ include "hearth.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "hearth.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "hearth.release" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{- define "hearth.image" -}}
{{ .Values.image.repository }}
{{- if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end -}}

{{- define "hearth.groups" -}}
serving.hearth.dev{{ if .Values.noctaya.enabled }},serving.noctaya.io{{ end }}
{{- end -}}

{{- define "hearth.defaultNamespace" -}}
{{- if .Values.defaultNamespace -}}
{{ .Values.defaultNamespace }}
{{- else if eq (len .Values.namespaces) 1 -}}
{{ first .Values.namespaces }}
{{- end -}}
{{- end -}}

{{- /* A duration as Go writes it, in whole seconds, rounded up. */ -}}
{{- define "hearth.seconds" -}}
{{- $total := 0.0 -}}
{{- range regexFindAll "[0-9]+([.][0-9]+)?(ms|s|m|h)" . -1 -}}
{{- $unit := get (dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0) (regexFind "[a-z]+" .) -}}
{{- $total = addf $total (mulf (regexFind "[0-9.]+" . | float64) $unit) -}}
{{- end -}}
{{- ceil $total | int -}}
{{- end -}}

{{- /* Without roles of ours there may be no right to write policies: whoever says `policy` says that there is. */ -}}
{{- define "hearth.guard" -}}
{{ .Values.backends.guard | default (ternary "policy" "warn" .Values.rbac.create) }}
{{- end -}}

{{- define "hearth.ipFamilies" -}}
{{- with .Values.ipFamilyPolicy -}}
ipFamilyPolicy: {{ . }}
{{ end -}}
{{- with .Values.ipFamilies -}}
ipFamilies: {{ toJson . }}
{{- end -}}
{{- end -}}

{{- /* Every name of the gateway itself, with commas between them. */ -}}
{{- define "hearth.domains" -}}
{{- prepend .Values.gateway.domains .Values.gateway.domain | compact | uniq | join "," -}}
{{- end -}}

{{- define "hearth.neededDomains" -}}
{{- required "set gateway.domain: the host name under which the gateway is reached, for example models.example.com" (include "hearth.domains" .) -}}
{{- end -}}
