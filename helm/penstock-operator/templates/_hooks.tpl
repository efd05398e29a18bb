{{/*
The pod of a hook, which runs `penstock` from the operator's image with the operator's roles:
(dict "top" . "name" NAME "arguments" LIST)
*/}}
{{- define "penstock-operator.hookPod" -}}
{{- $top := .top -}}
restartPolicy: Never
serviceAccountName: {{ include "penstock-operator.serviceAccount" $top | quote }}
automountServiceAccountToken: true
enableServiceLinks: false
{{- with $top.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  seccompProfile:
    type: RuntimeDefault
containers:
  - name: {{ .name | quote }}
    image: {{ include "penstock-operator.image" (list $top $top.Values.image "operator") | quote }}
    imagePullPolicy: {{ $top.Values.image.pullPolicy | quote }}
    args: {{- toYaml .arguments | nindent 6 }}
    resources: {{- toYaml $top.Values.hookResources | nindent 6 }}
    securityContext:
      allowPrivilegeEscalation: false
      capabilities:
        drop: [ALL]
      readOnlyRootFilesystem: true
{{- with $top.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $top.Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with (default dict $top.Values.affinity).nodeAffinity }}
affinity:
  nodeAffinity: {{- toYaml . | nindent 4 }}
{{- end }}
{{- with $top.Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end -}}
