{{- define "lab.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.Version | replace "+" "_" | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- /* A workload with one pod template. Takes (dict "root" $ "kind" "DaemonSet" "name" "…" "values" …): `values` has
the keys that charts have for a pod, and what is missing is left out. */ -}}
{{- define "lab.workload" -}}
{{- $root := .root -}}
{{- $values := .values | default dict -}}
{{- $image := $root.Values.image | default dict -}}
apiVersion: apps/v1
kind: {{ .kind }}
metadata:
  name: {{ .name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "lab.labels" $root | nindent 4 }}
    {{- with .ownLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  {{- if eq .kind "Deployment" }}
  replicas: {{ $values.replicaCount | default 1 | int }}
  {{- end }}
  selector:
    matchLabels:
      app.kubernetes.io/instance: {{ $root.Release.Name }}
      lab.paddock.dev/workload: {{ .name }}
  template:
    metadata:
      labels:
        app.kubernetes.io/name: {{ $root.Chart.Name }}
        app.kubernetes.io/instance: {{ $root.Release.Name }}
        lab.paddock.dev/workload: {{ .name }}
        {{- with .labels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        lab.paddock.dev/values: {{ toJson $root.Values | sha256sum | trunc 16 | quote }}
    spec:
      {{- range $key := list "nodeSelector" "affinity" "tolerations" "priorityClassName" }}
      {{- with get $values $key }}
      {{ $key }}: {{ toYaml . | nindent 8 }}
      {{- end }}
      {{- end }}
      {{- with .account }}
      serviceAccountName: {{ . }}
      {{- end }}
      {{- with .podSecurity }}
      securityContext: {{ toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: {{ .container | default $root.Chart.Name }}
          image: "{{ $image.repository | default (printf "lab.invalid/%s" $root.Chart.Name) }}:{{ $image.tag | default $root.Chart.Version | replace "+" "_" }}"
          {{- with $values.resources }}
          resources: {{ toYaml . | nindent 12 }}
          {{- end }}
          {{- with .command }}
          command: {{ toYaml . | nindent 12 }}
          {{- end }}
          {{- with .args }}
          args: {{ toYaml . | nindent 12 }}
          {{- end }}
          {{- with .env | default $values.extraEnv }}
          env: {{ toYaml . | nindent 12 }}
          {{- end }}
          {{- with .security }}
          securityContext: {{ toYaml . | nindent 12 }}
          {{- end }}
{{- end }}
