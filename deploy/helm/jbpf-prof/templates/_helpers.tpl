{{- define "jbpf-prof.name" -}}
{{- if eq .Release.Name "jbpf-prof" }}jbpf-prof{{ else }}{{ printf "%s-jbpf-prof" .Release.Name | trunc 63 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "jbpf-prof.selector" -}}
app.kubernetes.io/name: jbpf-prof
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "jbpf-prof.labels" -}}
{{ include "jbpf-prof.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* TOML: JSON writes strings, numbers and lists of strings as TOML does. */}}
{{- define "jbpf-prof.settings" -}}
{{- range $key, $value := .Values.settings }}
{{ $key }} = {{ toJson $value }}
{{- end }}
{{- range .Values.sinks }}

[[sink]]
{{- range $key, $value := . }}
{{ $key }} = {{ toJson $value }}
{{- end }}
{{- end }}
{{- end }}
