{{- define "fleetlore.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{/* What never changes, of one role: dict "root" $ "role" ROLE. */}}
{{- define "fleetlore.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .role }}
{{- end -}}

{{- define "fleetlore.name" -}}
{{- $name := ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) (contains .Chart.Name .Release.Name) -}}
{{- $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{/* A number as a setting reads it: Helm has floats alone, and prints two million as 2e+06. */}}
{{- define "fleetlore.value" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) }}{{ printf "%.0f" . }}{{ else }}{{ . }}{{ end -}}
{{- end -}}

{{/* The environment: secrets are files, and a setting that is a file itself names it. */}}
{{- define "fleetlore.env" -}}
{{- range $name, $secret := .Values.secrets }}
- name: {{ $name }}{{ if not (hasSuffix "_LOCATION" $name) }}_FILE{{ end }}
  value: /run/secrets/fleetlore/{{ $name }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "fleetlore.account" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "fleetlore.name" .) }}
{{- else }}{{ .Values.serviceAccount.name | default "default" }}{{ end -}}
{{- end -}}

{{/* Everything of a pod but its container: dict "root" $ "role" ROLE "values" VALUES. */}}
{{- define "fleetlore.pod" -}}
{{- $drain := default 20 (index .root.Values.settings "FLEETLORE_DRAIN_SECONDS") -}}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
serviceAccountName: {{ include "fleetlore.account" .root }}
automountServiceAccountToken: false
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .values.topologySpreadConstraints }}
topologySpreadConstraints:
{{- range . }}
  - {{ toYaml (mergeOverwrite (dict "labelSelector" (dict "matchLabels" (include "fleetlore.selector" (dict "root" $.root "role" $.role) | fromYaml))) .) | nindent 4 | trim }}
{{- end }}
{{- end }}
# Kubernetes would set FLEETLORE_…_PORT for each Service of this name, and a role refuses a variable that is no setting.
enableServiceLinks: false
# The drain, 5 s to commit and leave, and some to be sure: after that Kubernetes kills.
terminationGracePeriodSeconds: {{ add (ceil $drain) 15 }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* What all containers share: dict "root" $ "values" VALUES. */}}
{{- define "fleetlore.container" -}}
{{- $image := mergeOverwrite (dict) .root.Values.image (.values.image | default dict) }}
image: "{{ $image.repository }}{{ if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .root.Chart.AppVersion }}{{ end }}"
imagePullPolicy: {{ $image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
envFrom:
  - configMapRef: {name: {{ include "fleetlore.name" .root }}}
resources: {{- toYaml .values.resources | nindent 2 }}
{{- end -}}

{{/* Files of secrets: dict "root" $ "more" (dict NAME {name, key}). */}}
{{- define "fleetlore.secrets" -}}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
    {{- range $name, $secret := merge (dict) .root.Values.secrets .more }}
      - secret:
          name: {{ $secret.name }}
          items: [{key: {{ $secret.key | quote }}, path: {{ $name }}}]
    {{- else }} []
    {{- end }}
{{- end -}}

{{- define "fleetlore.probes" -}}
# On a cold disk a first start imports for a minute, a trainer PyTorch too.
startupProbe:
  httpGet: {path: /livez, port: metrics}
  periodSeconds: 5
  failureThreshold: 36
livenessProbe:
  httpGet: {path: /livez, port: metrics}
  periodSeconds: 20
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
{{- end -}}
