{{- define "penstock-broker.name" -}}
{{- if not (or .Values.broker.name (regexMatch "^[a-z]([-a-z0-9]{0,28}[a-z0-9])?$" .Release.Name)) -}}
{{- fail (printf "a Broker can't be called %q, as this release: write another name into broker.name, of at most 30 letters, digits and hyphens, the first one a letter" .Release.Name) -}}
{{- end -}}
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

{{/* The spec of what belongs to the Broker, without the Broker: (list GROUP NAME SPEC). */}}
{{- define "penstock-broker.spec" -}}
{{- $spec := default dict (index . 2) -}}
{{- if hasKey $spec "brokerRef" -}}
{{- fail (printf "%s.%s.brokerRef: leave it out; all that this release makes is for the Broker broker.name" (index . 0) (index . 1)) -}}
{{- end -}}
{{- with $spec -}}{{ toYaml . }}{{- end -}}
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
