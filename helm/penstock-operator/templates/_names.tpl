{{/* Names and labels. */}}

{{- define "penstock-operator.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "penstock-operator.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "penstock-operator.labels" -}}
{{ include "penstock-operator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | trunc 63 | trimSuffix "-" | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" | quote }}
{{- end -}}

{{/* The same with labels of the values, which win: (list . .Values.X.labels). As one map, because no key may be there twice. */}}
{{- define "penstock-operator.labelsWith" -}}
{{- merge dict (default dict (index . 1)) (include "penstock-operator.labels" (index . 0) | fromYaml) | toYaml -}}
{{- end -}}

{{/* Labels of the operator's pod. By those of the selector its Deployment finds it. */}}
{{- define "penstock-operator.podLabels" -}}
{{- $selector := include "penstock-operator.selector" . | fromYaml -}}
{{- range $key, $value := .Values.podLabels -}}
{{- if and (hasKey $selector $key) (ne $value (get $selector $key)) -}}
{{- fail (printf "podLabels.%s can't be %q: by this label the Deployment finds its pods, and it is %q" $key $value (get $selector $key)) -}}
{{- end -}}
{{- end -}}
{{- merge $selector (default dict .Values.podLabels) | toYaml -}}
{{- end -}}

{{- define "penstock-operator.serviceAccount" -}}
{{- default (include "penstock-operator.fullname" .) .Values.serviceAccount.name -}}
{{- end -}}

{{/*
Schedule, Secret and ServiceAccount of the operator's lag job. The names of its runs' pods add twenty characters, and no dots are
allowed in them, nor a digit at the beginning. A release whose name has to be changed for that gets a part of its hash, so that no
two releases share a job.
*/}}
{{- define "penstock-operator.lag" -}}
{{- $former := include "penstock-operator.formerLag" . -}}
{{- if eq $former (printf "%s-lag" .Release.Name) -}}
{{- $former -}}
{{- else -}}
{{- $release := .Release.Name | replace "." "-" | trunc 26 | trimSuffix "-" -}}
{{- printf "%s%s-%s-lag" (ternary "r" "" (regexMatch "^[0-9]" $release)) $release (sha256sum .Release.Name | trunc 8) -}}
{{- end -}}
{{- end -}}

{{/* The same as it was without the hash. The operator deletes what it has made under this name. */}}
{{- define "penstock-operator.formerLag" -}}
{{- $release := .Release.Name | replace "." "-" | trunc 35 | trimSuffix "-" -}}
{{- printf "%s%s-lag" (ternary "r" "" (regexMatch "^[0-9]" $release)) $release -}}
{{- end -}}

{{/* What the operator has to know of its lag job, as JSON. */}}
{{- define "penstock-operator.lagJob" -}}
{{- $secrets := list -}}
{{- range .Values.imagePullSecrets }}{{ $secrets = append $secrets .name }}{{ end -}}
{{- merge (dict
  "namespace" .Release.Namespace
  "name" (include "penstock-operator.lag" .)
  "formerName" (include "penstock-operator.formerLag" .)
  "deployment" (include "penstock-operator.fullname" .)
  "imagePullPolicy" (default .Values.image.pullPolicy .Values.lagImage.pullPolicy)
  "imagePullSecrets" $secrets
) (deepCopy .Values.lag) | toJson -}}
{{- end -}}

{{/* The full name of an image: (list . .Values.image "operator"). Without a repository it is in the registry of all images. */}}
{{- define "penstock-operator.image" -}}
{{- $top := index . 0 -}}{{- $image := index . 1 -}}
{{- $repository := default (printf "%s/penstock-%s" $top.Values.global.imageRegistry (index . 2)) $image.repository -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default (default $top.Chart.AppVersion $top.Values.global.imageTag) $image.tag) -}}
{{- end -}}
{{- end -}}

{{/* "true" if an object of the Prometheus operator is wanted: (list . .Values.X.enabled KIND) */}}
{{- define "penstock-operator.wanted" -}}
{{- $top := index . 0 -}}{{- $enabled := index . 1 -}}
{{- $there := $top.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" (index . 2)) -}}
{{- or (eq $enabled "Always") (and (eq $enabled "Auto") $there) -}}
{{- end -}}
