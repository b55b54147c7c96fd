{{- define "specbench.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "specbench.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "specbench.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "specbench.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- /* Labels that select the operator's pod. A Deployment's selector is immutable, so they must not change in an upgrade. */ -}}
{{- define "specbench.selector" -}}
app.kubernetes.io/name: {{ include "specbench.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "specbench.labels" -}}
{{ include "specbench.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: specbench
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "specbench.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "specbench.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{- define "specbench.repository" -}}
{{- required "image.repository is not set, and no registry has an image of specbench: build the Dockerfile's targets specbench and operator, push them as REGISTRY/specbench:TAG and REGISTRY/specbench-operator:TAG, and set image.repository=REGISTRY/specbench and image.tag=TAG" .Values.image.repository -}}
{{- end -}}

{{- define "specbench.clientImage" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" (include "specbench.repository" .) .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" (include "specbench.repository" .) (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "specbench.operatorImage" -}}
{{- $repository := .Values.operatorImage.repository | default (printf "%s-operator" (include "specbench.repository" .)) -}}
{{- if .Values.operatorImage.digest -}}
{{- printf "%s@%s" $repository .Values.operatorImage.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (.Values.operatorImage.tag | default .Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- /* Namespaces in which runs are executed, as a JSON list; empty means all. */ -}}
{{- define "specbench.namespaces" -}}
{{- if .Values.watchAllNamespaces -}}
[]
{{- else if regexMatch "[*?\\[]" (join "," .Values.watchNamespaces) -}}
{{- fail (printf "watchNamespaces contains a pattern (%s), and a Role cannot be bound to a pattern: set watchAllNamespaces=true as well; the operator then watches the namespaces that match" (join ", " .Values.watchNamespaces)) -}}
{{- else -}}
{{- .Values.watchNamespaces | default (list .Release.Namespace) | uniq | toJson -}}
{{- end -}}
{{- end -}}

{{- /* Name of an object in a watched namespace, unique among releases. Takes a list: root context, namespace. */ -}}
{{- define "specbench.nameIn" -}}
{{- $root := index . 0 -}}
{{- $fullname := include "specbench.fullname" $root -}}
{{- eq (index . 1) $root.Release.Namespace | ternary $fullname (printf "%s-%s" $root.Release.Namespace $fullname) -}}
{{- end -}}

{{- define "specbench.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- /* OpenShift's security context constraints assign the user, and refuse others. */ -}}
{{- define "specbench.podSecurity" -}}
{{- $context := .Values.podSecurityContext -}}
{{- if .Capabilities.APIVersions.Has "security.openshift.io/v1" -}}
{{- $context = omit $context "runAsUser" "runAsGroup" "fsGroup" -}}
{{- end -}}
{{- toYaml $context -}}
{{- end -}}
