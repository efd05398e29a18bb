{{/*
What the operator may do with Penstock's own kinds. Always by a ClusterRole: when a namespace is deleted, a Role in it goes
before the resources with our finalizer do, and the operator could no longer remove the finalizer.
*/}}
{{- define "penstock-operator.ownRules" -}}
- apiGroups: [penstock.dev]
  resources: [brokers]
  verbs: [get, list, watch]
- apiGroups: [penstock.dev] # patch: finalizers
  resources: [exchanges, subscriptions, queues]
  verbs: [get, list, watch, patch]
- apiGroups: [penstock.dev]
  resources: [brokers/status, exchanges/status, subscriptions/status, queues/status]
  verbs: [patch]
- apiGroups: [penstock.dev] # owner references that block deletion
  resources: [brokers/finalizers, exchanges/finalizers]
  verbs: [update]
- apiGroups: [""] # is it being deleted?
  resources: [namespaces]
  verbs: [get]
- apiGroups: [""] # is the node of a broker's pod lost? It is read only while that pod is not ready
  resources: [nodes]
  verbs: [get]
- apiGroups: [storage.k8s.io] # can the volumes of a class grow? It is read only when they are to
  resources: [storageclasses]
  verbs: [get]
- apiGroups: [coordination.k8s.io] # does another operator, which a Broker names, still live? Only such Leases are read
  resources: [leases]
  verbs: [get]
- nonResourceURLs: [/.well-known/openid-configuration, /openid/v1/jwks] # what ServiceAccount tokens are signed with
  verbs: [get]
{{- end -}}

{{/*
What it may do with everything else, in the namespaces that it manages. No wild cards, no pods/exec, and Secrets one by
one: it never lists or watches them.
*/}}
{{- define "penstock-operator.rules" -}}
- apiGroups: [apps] # delete: without its pods, to make it again with larger claims
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""] # patch: volumes that grow
  resources: [persistentvolumeclaims]
  verbs: [get, patch]
- apiGroups: [""]
  resources: [services, configmaps]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [secrets, serviceaccounts]
  verbs: [get, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
- apiGroups: [""] # why is there no pod of a broker, or no volume for it? They are read only while it is not ready
  resources: [events]
  verbs: [list]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, create, patch, delete]
- apiGroups: [cert-manager.io]
  resources: [certificates]
  verbs: [get, create, patch, delete]
- apiGroups: [cert-manager.io] # why is there no certificate? It is read only while there is none
  resources: [certificaterequests]
  verbs: [get]
- apiGroups: [batch]
  resources: [cronjobs]
  verbs: [get, create, patch, delete]
- apiGroups: [sparkoperator.k8s.io]
  resources: [scheduledsparkapplications]
  verbs: [get, create, patch, delete]
- apiGroups: [sparkoperator.k8s.io]
  resources: [sparkapplications]
  verbs: [get]
{{- end -}}
