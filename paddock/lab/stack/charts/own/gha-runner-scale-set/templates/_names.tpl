{{- define "set.name" -}}
{{ .Values.runnerScaleSetName | default .Release.Name }}
{{- end }}

{{- define "set.fullname" -}}
{{ printf "%s-gha-rs" (include "set.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "set.mode" -}}
{{ (.Values.containerMode | default dict).type | default "" }}
{{- end }}

{{- /* Labels that ARC's controller reads: it removes a set whose version is not its own. */ -}}
{{- define "set.labels" -}}
helm.sh/chart: gha-rs-{{ .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: {{ include "set.name" . }}
app.kubernetes.io/instance: {{ include "set.name" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: gha-rs
actions.github.com/scale-set-name: {{ include "set.name" . }}
actions.github.com/scale-set-namespace: {{ .Release.Namespace }}
{{- end }}

{{- define "set.account" -}}
{{- $own := printf "%s-%s" (include "set.fullname" .) (ternary "kube-mode" "no-permission" (eq (include "set.mode" .) "kubernetes-novolume")) -}}
{{ .Values.template.spec.serviceAccountName | default ($own | replace "_" "-") }}
{{- end }}
