{{- define "penstock-broker.name" -}}
{{- default .Release.Name .Values.broker.name -}}
{{- end -}}

{{- define "penstock-broker.labels" -}}
app.kubernetes.io/part-of: {{ include "penstock-broker.name" . | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" | quote }}
{{- end -}}

{{/* The same with labels of the values, which win: (list . .Values.X.labels). As one map, because no key may be there twice. */}}
{{- define "penstock-broker.labelsWith" -}}
{{- merge dict (default dict (index . 1)) (include "penstock-broker.labels" (index . 0) | fromYaml) | toYaml -}}
{{- end -}}

{{/* What no one may delete while the annotation is there: a policy of the chart penstock-operator refuses it. */}}
{{- define "penstock-broker.protection" -}}
{{- if .Values.deleteProtection -}}penstock.dev/delete-protection: "true"{{- end -}}
{{- end -}}

{{/* How `helm test` connects, as JSON: user, Secret, scheme; {} if nobody has said who may. */}}
{{- define "penstock-broker.testLogin" -}}
{{- $spec := default dict .Values.broker.spec -}}
{{- $who := default dict $spec.authentication -}}
{{- $listeners := default dict $spec.listeners -}}
{{- $tls := ne (toString $listeners.amqps) "false" -}}
{{- $scheme := ternary "amqps" (ternary "amqp" "" (eq (toString $listeners.amqp) "true")) $tls -}}
{{- $secret := default dict $who.usersSecretRef -}}
{{- if and .Values.broker.create $scheme -}}
{{- if and .Values.test.user $secret.name -}}
{{- dict "scheme" $scheme "user" .Values.test.user "secret" $secret.name | toJson -}}
{{- else if $who.anonymous -}}
{{- dict "scheme" $scheme | toJson -}}
{{- else -}}{}
{{- end -}}
{{- else -}}{}
{{- end -}}
{{- end -}}
