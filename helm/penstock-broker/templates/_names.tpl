{{- define "penstock-broker.name" -}}
{{- default .Release.Name .Values.broker.name -}}
{{- end -}}

{{- define "penstock-broker.labels" -}}
app.kubernetes.io/part-of: {{ include "penstock-broker.name" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}
